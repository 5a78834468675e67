"""Members of a share group: raw connections that take one record at a time, or confluent-kafka's ShareConsumer."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from confluent_kafka import AcknowledgeType, ShareConsumer, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.driver import Figures, drive
from bench.frames import one_record_batch
from bench.measure import rss_mb
from bench.payload import random_values
from bench.raw_client import RawConnection, connect_many, prepare_process, wait_for_leaders
from bench.share_frames import (
    ShareAnswer,
    heartbeat_request,
    read_heartbeat,
    read_share_fetch,
    share_fetch_request,
)

IN_FLIGHT = 200
STALL_S = 60.0
WAIT_MS = 1_000


def shares(
    bootstrap: str,
    topic: str,
    group: str,
    partitions: int,
    consumers: int,
    count: int,
    size: int,
    how: Literal["write", "raw", "client", "commit", "hold"],
    records_at_a_time: int = 1,
    holders: int = 0,
    watched_pid: int = 0,
) -> Figures:
    """Seconds until `count` records are consumed and accepted, or written, each in a batch of its own.

    `holders` further members take one record each and keep it. With `hold` all members keep their records, and the
    figures have the memory of the process `watched_pid` then.
    """
    prepare_process()
    if how == "write":
        asyncio.run(write(bootstrap, topic, partitions, count, size))
        return {}
    configure(bootstrap, group)
    if how in ("raw", "hold"):
        topic_id = find_topic_id(bootstrap, topic)
        members = Members(group, topic_id, partitions, count, records_at_a_time)
        members.holds = how == "hold"
        return asyncio.run(members.run(bootstrap, topic, consumers, holders, watched_pid))
    return consume(bootstrap, topic, group, count, is_synchronous=how == "commit")


def configure(bootstrap: str, group: str, configs: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"share.auto.offset.reset": "earliest", **(configs or {})}.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    # The raw members do not look for their coordinator: this has the servers make their internal topic.
    for described in admin.describe_consumer_groups([group]).values():
        described.exception(30)


def find_topic_id(bootstrap: str, topic: str) -> UUID:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    identity = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    high, low = identity.get_most_significant_bits(), identity.get_least_significant_bits()
    return UUID(int=(high & (1 << 64) - 1) << 64 | low & (1 << 64) - 1)


async def write(bootstrap: str, topic: str, partitions: int, count: int, size: int) -> None:
    batches = [one_record_batch(value, int(time.time() * 1000)) for value in random_values(size)]
    await wait_for_leaders(bootstrap, topic, partitions, batches[0])
    (connection,) = await connect_many(bootstrap, 1)
    for start in range(0, count, IN_FLIGHT):
        sent = [
            connection.produce(topic, number % partitions, batches[number % len(batches)])
            for number in range(start, min(count, start + IN_FLIGHT))
        ]
        if any(answer.error_code for answer in await asyncio.gather(*sent)):
            raise RuntimeError("a record was refused")
    connection.close()


class Members:
    def __init__(self, group: str, topic_id: UUID, partitions: int, count: int, at_a_time: int) -> None:
        self._group = group
        self._topic_id = topic_id
        self._partitions = partitions
        self._left = count
        self._at_a_time = at_a_time
        self.holds = False
        """Whether members keep their records."""
        self._taken: list[int] = []
        self._longest_wait_s = 0.0

    async def run(
        self, bootstrap: str, topic: str, consumers: int, holders: int = 0, watched_pid: int = 0
    ) -> Figures:
        connections = await connect_many(bootstrap, consumers + holders)
        for number, connection in enumerate(connections):
            await self._join(connection, f"member-{number}", topic)
        self._taken = [0] * consumers
        for number in range(consumers, consumers + holders):
            await self._hold_one(number, connections[number])
        began = time.perf_counter()
        workers = connections[:consumers]
        await asyncio.gather(*(self._work(number, each) for number, each in enumerate(workers)))
        seconds = time.perf_counter() - began
        memory_mb = rss_mb(watched_pid) if watched_pid else 0.0
        for connection in connections:
            connection.close()
        mean = sum(self._taken) / consumers
        return {
            "seconds": seconds,
            "messages": sum(self._taken),
            "least_share": min(self._taken) / mean,
            "most_share": max(self._taken) / mean,
            "longest_wait_s": self._longest_wait_s,
            "rss_mb": memory_mb,
        }

    async def _hold_one(self, number: int, connection: RawConnection) -> None:
        """Take a record of each partition and keep it."""
        deadline = time.monotonic() + STALL_S
        named: dict[int, list[tuple[int, int]]] = {index: [] for index in range(self._partitions)}
        for epoch in itertools.count():
            answer = await self._fetch(connection, number, epoch, named, 1)
            if answer.acquired:
                return
            if answer.error_code or time.monotonic() > deadline:
                raise RuntimeError(f"member {number} got {answer}")
            named = {}

    async def _fetch(
        self,
        connection: RawConnection,
        number: int,
        epoch: int,
        named: dict[int, list[tuple[int, int]]],
        max_records: int,
    ) -> ShareAnswer:
        wait_ms = WAIT_MS if max_records else 0
        place = self._group, f"member-{number}", epoch, self._topic_id, named
        request = share_fetch_request(connection.next_id(), *place, max_records, wait_ms)
        return read_share_fetch(await connection.ask(request))

    async def _join(self, connection: RawConnection, member: str, topic: str) -> None:
        deadline = time.monotonic() + STALL_S
        while True:
            request = heartbeat_request(connection.next_id(), self._group, member, topic)
            if read_heartbeat(await connection.ask(request)) == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{member} cannot join")
            await asyncio.sleep(0.05)

    async def _work(self, number: int, connection: RawConnection) -> None:
        named: dict[int, list[tuple[int, int]]] = {index: [] for index in range(self._partitions)}
        epoch, asked_at = 0, time.perf_counter()
        deadline = time.monotonic() + STALL_S
        while self._left > 0 or any(named.values()):
            max_records = self._at_a_time if self._left > 0 else 0
            answer = await self._fetch(connection, number, epoch, named, max_records)
            epoch, named = epoch + 1, {}
            if not answer.error_code and answer.acknowledge_errors and not self._taken[number]:
                await asyncio.sleep(
                    0.05
                )  # Kafka creates the state of a partition after the member has joined
            elif answer.error_code or answer.acknowledge_errors:
                raise RuntimeError(f"member {number} got {answer}")
            for partition, first, last in answer.acquired:
                if not self.holds:
                    named.setdefault(partition, []).append((first, last))
                self._taken[number] += last - first + 1
                self._left -= last - first + 1
            if answer.acquired:
                self._longest_wait_s = max(self._longest_wait_s, time.perf_counter() - asked_at)
                asked_at, deadline = time.perf_counter(), time.monotonic() + STALL_S
            elif time.monotonic() > deadline:
                raise RuntimeError(f"member {number} got nothing for {STALL_S} s; {self._left} are left")


def consume(bootstrap: str, topic: str, group: str, count: int, *, is_synchronous: bool) -> Figures:
    """Consume with one ShareConsumer; `is_synchronous` commits each record before the next one."""
    mode = "explicit" if is_synchronous else "implicit"
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
    )
    consumer.subscribe([topic])
    got, began, deadline = 0, 0.0, time.monotonic() + STALL_S
    while got < count:
        messages = [each for each in consumer.poll(1.0) if each.error() is None]
        began = began or time.perf_counter()
        for message in messages if is_synchronous else ():
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync()
        got += len(messages)
        deadline = time.monotonic() + STALL_S if messages else deadline
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count - got} records did not come within {STALL_S} s")
    seconds = time.perf_counter() - began
    consumer.close()
    return {"seconds": seconds, "messages": got}


if __name__ == "__main__":
    drive(shares)
