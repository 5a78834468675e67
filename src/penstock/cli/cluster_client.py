"""Client of a cluster for the topic, record and group commands. Checks first that a broker responds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.cli.admin_client import NAME_A_BROKER, NO_TOPIC, not_an_address, run_admin
from penstock.cli.failures import Failure
from penstock.client.probe import probe
from penstock.config import Address, parse_address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.client_security import ClientSecurity
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.internal_client.topic_routes import TopicRoute
from penstock.unreachable import Unreachable

T = TypeVar("T")

CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of the records in a partition: from `start` (inclusive) to `end` (exclusive)."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """Number of offsets. It can exceed the number of records, because of compaction and transaction markers."""
        return self.end - self.start


class ClusterClient:
    def __init__(self, bootstrap: str) -> None:
        _check_reachable(bootstrap)
        self.bootstrap = bootstrap

    def run(self, work: Callable[[InternalClient], Awaitable[T]], subject: str = "") -> T:
        """Run `work` with an internal client. If a broker refuses a request, the Failure contains `subject`."""
        return run_admin(self.bootstrap, work, subject)

    def topics(self) -> dict[str, TopicRoute]:
        """Return all topics by name, sorted."""
        found = self.run(lambda client: client.topics.all(), "the topics")
        return {topic.name: topic for topic in found}

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic. Raises Failure if the topic does not exist."""
        return list(range(len(self.topic(topic).partitions)))

    def topic(self, name: str) -> TopicRoute:
        """Return a topic. Raises Failure if it does not exist."""
        found = self.run(lambda client: _find_topic(client, name), name)
        if found is None:
            raise Failure(f"there is no topic {name!r}", NO_TOPIC)
        return found

    def partitions_of(self, topic: str, wanted: list[int] | None) -> list[int]:
        """Return the partitions `wanted`, or all partitions of the topic if it is None.

        Raises Failure if a wanted partition does not exist.
        """
        existing = self.partitions(topic)
        missing = sorted(set(wanted or ()) - set(existing))
        if missing:
            raise Failure(
                f"{topic} has no partition {missing[0]}", f"Its partitions are 0 to {existing[-1]}."
            )
        return sorted(set(wanted)) if wanted else existing

    def ranges(self, topic: str, partitions: Iterable[int]) -> list[PartitionRange]:
        chosen = list(partitions)
        starts = self.offsets(topic, chosen, EARLIEST)
        ends = self.offsets(topic, chosen, LATEST)
        return [PartitionRange(number, starts[number], ends[number]) for number in chosen]

    def offsets(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """Return for each partition the first offset at or after a time (or EARLIEST, LATEST); the log end if all
        records are older.
        """
        found = self.offsets_of([(topic, number) for number in partitions], time_ms)
        return {number: offset for (_, number), offset in found.items()}

    def offsets_of(self, partitions: Iterable[tuple[str, int]], time_ms: int) -> dict[tuple[str, int], int]:
        """Return offsets by topic and partition, for partitions of several topics."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)

        async def look_up(client: InternalClient) -> dict[tuple[str, int], int]:
            found = await asyncio.gather(
                *(
                    client.records.offsets(topic, numbers, time_ms, read_committed=False)
                    for topic, numbers in by_topic.items()
                )
            )
            return {
                (topic, number): offsets[number]
                for (topic, numbers), offsets in zip(by_topic.items(), found, strict=True)
                for number in numbers
            }

        return self.run(look_up, ", ".join(by_topic)) if by_topic else {}

    def count_offsets(self, topics: Iterable[TopicRoute]) -> dict[str, int]:
        """Count the offsets of each topic, from the log starts to the log ends of its partitions."""
        counts = {topic.name: 0 for topic in topics}
        wanted = [(topic.name, number) for topic in topics for number in range(len(topic.partitions))]
        for which, sign in ((LATEST, 1), (EARLIEST, -1)):
            for (topic, _), offset in self.offsets_of(wanted, which).items():
                counts[topic] += sign * offset
        return counts


async def _find_topic(client: InternalClient, name: str) -> TopicRoute | None:
    try:
        return await client.topics.get(name)
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            return None
        raise


def client_config(bootstrap: str) -> dict[str, Any]:
    """Return the librdkafka settings of all clients. Its log lines are turned off, because they repeat our errors."""
    security = ClientSecurity.from_environment(os.environ).librdkafka()
    return {"bootstrap.servers": bootstrap, "client.id": "penstock-cli", "log_level": 0, **security}


def _check_reachable(bootstrap: str) -> None:
    """Raise Failure if no address responds. Without this check, a Kafka client retries for a long time and does not
    name the reason.
    """
    problems: dict[Address, OSError] = {}
    is_plaintext = ClientSecurity.from_environment(os.environ).is_plaintext
    for text in bootstrap.split(","):
        try:
            address = parse_address(text.strip())
        except ValueError:
            raise not_an_address(text) from None
        try:
            if is_plaintext:
                probe(address.host, address.port, CONNECT_SECONDS)
            else:
                socket.create_connection((address.host, address.port), CONNECT_SECONDS).close()
        except OSError as error:
            problems[address] = error
        else:
            return
    unreachable = Unreachable(problems)
    hint = NAME_A_BROKER if unreachable.is_wrong_port else _how_to_reach(address)
    raise Failure(str(unreachable), hint)


def _how_to_reach(address: Address) -> str:
    return (
        f"Start a broker with `penstock broker --data-dir data --port {address.port} --http-port 8080`, "
        "or name another with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP."
    )
