"""The broker as the command line sees it: an admin client known to be connected, and errors that help.

Every call of a Kafka client that can fail goes through `answer`, so that failures read the same everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from penstock.cli.failures import ExitCode, Failure
from penstock.client.probe import probe
from penstock.config import Address, parse_address
from penstock.internal_client.errors import Unreachable

T = TypeVar("T")

CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 30.0
HEARD_SECONDS = 0.05
"""How often it is looked whether a broker has heard of a new topic."""

_NO_TOPIC = "`penstock topic list` shows the topics, `penstock topic create` makes one."
_NAME_ANOTHER = "Name another with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP."
NO_GROUP = "`penstock group list` shows the groups."
_HINTS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError.TOPIC_ALREADY_EXISTS: "`penstock topic describe` shows it, `penstock topic alter` changes it.",
    KafkaError.GROUP_ID_NOT_FOUND: NO_GROUP,
    KafkaError.NON_EMPTY_GROUP: "Stop its members first; `penstock group describe` shows them.",
    KafkaError._TIMED_OUT: "The broker was reached but did not answer in time.",
}


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets a partition holds: from `start` up to and without `end`."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many offsets the partition holds; compaction and transaction markers leave fewer records than that."""
        return self.end - self.start


class Cluster:
    def __init__(self, bootstrap: str) -> None:
        _check_reachable(bootstrap)
        self.bootstrap = bootstrap
        self.admin = AdminClient(client_config(bootstrap))

    def metadata(self) -> ClusterMetadata:
        try:
            return self.admin.list_topics(timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise _failure(error, "the broker's metadata") from None

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions; a Failure where there is no such topic."""
        found = self.metadata().topics.get(topic)
        if found is None:
            raise Failure(f"there is no topic {topic!r}", _NO_TOPIC)
        return sorted(found.partitions)

    def partitions_when_known(self, topic: str) -> list[int]:
        """Of a topic that was made just now: the broker that is asked may have yet to hear of it."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while topic not in self.metadata().topics and time.monotonic() < deadline:
            time.sleep(HEARD_SECONDS)
        return self.partitions(topic)

    def partitions_of(self, topic: str, wanted: list[int] | None) -> list[int]:
        """Those asked for, which must exist; all of the topic where none is."""
        existing = self.partitions(topic)
        missing = sorted(set(wanted or ()) - set(existing))
        if missing:
            raise Failure(f"{topic} has no partition {missing[0]}", f"They go from 0 to {existing[-1]}.")
        return sorted(set(wanted)) if wanted else existing

    def ranges(self, topic: str, partitions: Iterable[int]) -> list[PartitionRange]:
        chosen = list(partitions)
        starts = self.offsets(topic, chosen, OffsetSpec.earliest())
        ends = self.offsets(topic, chosen, OffsetSpec.latest())
        return [PartitionRange(number, starts[number], ends[number]) for number in chosen]

    def offsets(self, topic: str, partitions: Iterable[int], which: OffsetSpec) -> dict[int, int]:
        """By partition; -1 where nothing matches."""
        asked = [TopicPartition(topic, number) for number in partitions]
        return {partition.partition: offset for partition, offset in self._list_offsets(asked, which)}

    def offsets_of(
        self, partitions: Iterable[tuple[str, int]], which: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """By topic and partition, over many topics at once."""
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        listed = self._list_offsets(asked, which)
        return {(partition.topic, partition.partition): offset for partition, offset in listed}

    def count_offsets(self, partitions: Mapping[str, Iterable[int]]) -> dict[str, int]:
        """How many offsets each topic holds, from its log starts to its ends."""
        counts = dict.fromkeys(partitions, 0)
        asked = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        for which, sign in ((OffsetSpec.latest(), 1), (OffsetSpec.earliest(), -1)):
            for partition, offset in self._list_offsets(asked, which):
                counts[partition.topic] += sign * offset
        return counts

    def _list_offsets(
        self, asked: list[TopicPartition], which: OffsetSpec
    ) -> Iterator[tuple[TopicPartition, int]]:
        if asked:
            wanted = dict.fromkeys(asked, which)
            for partition, future in self.admin.list_offsets(wanted, request_timeout=REQUEST_SECONDS).items():
                yield partition, answer(future, partition.topic).offset

    def offsets_at_time(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offset at or after a time; the end where all records are older."""
        chosen = list(partitions)
        found = self.offsets(topic, chosen, OffsetSpec.for_timestamp(time_ms))
        ends = self.offsets(topic, chosen, OffsetSpec.latest())
        return {number: offset if offset >= 0 else ends[number] for number, offset in found.items()}


def client_config(bootstrap: str) -> dict[str, Any]:
    """What every client here is made with; librdkafka's own log lines would only repeat our errors."""
    return {"bootstrap.servers": bootstrap, "client.id": "penstock-cli", "log_level": 0}


def answer(future: Future[T], what: str) -> T:
    """What the broker answered, or a Failure that says what it refused and why."""
    try:
        return future.result(REQUEST_SECONDS + CONNECT_SECONDS)
    except KafkaException as error:
        raise _failure(error, what) from None


def answers(futures: Mapping[Any, Future[T]]) -> list[T]:
    return [answer(future, str(what)) for what, future in futures.items()]


def _failure(error: KafkaException, what: str) -> Failure:
    reason: KafkaError = error.args[0]
    return Failure(f"{what}: {reason.str()} ({reason.name()})", _HINTS.get(reason.code(), ""))


def _check_reachable(bootstrap: str) -> None:
    """Try the addresses here: a Kafka client goes on trying for long and does not say why."""
    problems: dict[Address, OSError] = {}
    for text in bootstrap.split(","):
        try:
            address = parse_address(text.strip())
        except ValueError:
            raise Failure(f"{text!r} is not HOST:PORT", code=ExitCode.USAGE) from None
        try:
            probe(address.host, address.port, CONNECT_SECONDS)
        except OSError as error:
            problems[address] = error
        else:
            return
    unreachable = Unreachable(problems)
    hint = _NAME_ANOTHER if unreachable.is_wrong_port else _how_to_reach(address)
    raise Failure(str(unreachable), hint)


def _how_to_reach(address: Address) -> str:
    return (
        f"Start one with `penstock broker --data-dir data --port {address.port} --http-port 8080`, "
        "or name another with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP."
    )
