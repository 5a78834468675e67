"""Mailboxes over a topic in memory with a manual clock: partitions are added, time passes, acknowledgements
come late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.config import BrokerConfig, ConfigSource
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.mailbox import Mailbox, MailboxMessage
from penstock.gateway.records import KeyPage, Limits
from penstock.internal_client.configs import ConfigEntry
from penstock.internal_client.keyed_reads import KeyedRead, KeyReceiver, RecordDamaged
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.producer import OffsetReceiver
from penstock.internal_client.topic_routes import PartitionRoute, TopicRoute
from penstock.internal_client.topics import NewTopic
from penstock.model import BrokerId, TopicId
from penstock.records.building import NewRecord
from penstock.records.content import Headers
from penstock.records.iteration import Record


class ManualClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000

    def advance(self, seconds: float) -> None:
        self.time_ms += round(seconds * 1000)


class MemoryTopic:
    """One topic, `mailbox`, as the backend: topics, configs and records at once."""

    def __init__(self) -> None:
        self.partitions: list[list[Record]] = []
        self.active: int | None = None
        """Number of active partitions, if it is smaller than the number of partitions."""
        self.configs_by_name: dict[str, str] = {}
        self.topic_id = TopicId(UUID(int=1))
        self.log_start = 0
        self.held: asyncio.Event | None = None
        """Delays acknowledgements while it exists and is not set."""
        self.is_away = False
        self.damaged = -1
        """The offset of a record that cannot be read."""
        self.page_records = 1_000

    @property
    def topics(self) -> Any:
        return self

    configs = records = topics

    async def get(self, *asked: Any, fresh: bool = False) -> Any:
        if self.is_away:
            raise ConnectionRefusedError("away")
        if isinstance(asked[0], ConfigResourceType):
            return [
                ConfigEntry(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG, False, False, "")
                for name, value in self.configs_by_name.items()
            ]
        if not self.partitions:
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        route = PartitionRoute(BrokerId(1), 0, (BrokerId(1),), (BrokerId(1),))
        going = [self.active is not None and index >= self.active for index in range(len(self.partitions))]
        routes = tuple(replace(route, is_going=each) for each in going)
        return TopicRoute("mailbox", self.topic_id, False, routes)

    async def create(self, topic: NewTopic) -> None:
        self.partitions = [[] for _ in range(topic.partitions)]
        self.configs_by_name = dict(topic.configs or {})

    async def alter(self, kind: ConfigResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        self.configs_by_name |= {option: value or "" for option, value in changes.items()}

    def shrink(self, active: int) -> None:
        self.active = active

    def remove(self, partitions: int) -> None:
        """Remove partitions that go, once their records have expired."""
        del self.partitions[partitions:]

    def grow(self, partitions: int) -> None:
        self.active = None
        self.partitions += [[] for _ in range(partitions - len(self.partitions))]

    async def produce(self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False) -> int:
        log = self.partitions[partition]
        own_key = dict(record.headers).get("penstock-idempotency-key")
        for each in log:
            if own_key and each.key == record.key and ("penstock-idempotency-key", own_key) in each.headers:
                return each.offset
        log.append(Record(len(log), record.timestamp, record.key, record.value, record.headers))
        if self.held is not None:
            await self.held.wait()
        return len(log) - 1

    def submit(
        self, topic: str, partition: int, record: NewRecord, offset: OffsetReceiver, *, is_alone: bool = False
    ) -> None:
        producing = asyncio.ensure_future(self.produce(topic, partition, record, is_alone=is_alone))
        producing.add_done_callback(lambda done: offset.set_result(done.result()))

    async def read_key(
        self, topic: str, partition: int, key: bytes, from_offset: int, limits: Limits, wait_ms: int = 0
    ) -> KeyPage:
        if wait_ms:
            await asyncio.sleep(0)
        return self._read_key(partition, key, from_offset, limits)

    def begin_read_key(self, wanted: KeyedRead, receiver: KeyReceiver) -> Callable[[], None]:
        found: Any = None
        with suppress(RecordDamaged):
            limits = Limits(wanted.max_records, wanted.max_bytes)
            found = self._read_key(wanted.partition, wanted.key, wanted.from_offset, limits)
        asyncio.get_running_loop().call_soon(receiver.set_result, found)
        return lambda: None

    def take_key(self, wanted: KeyedRead, found: KeyPage | None) -> KeyPage | None:
        return found

    def _read_key(self, partition: int, key: bytes, from_offset: int, limits: Limits) -> KeyPage:
        start = max(from_offset, self.log_start)
        matching = [each for each in self.partitions[partition][start:] if each.key == key]
        if matching and matching[0].offset == self.damaged:
            raise RecordDamaged(self.damaged + 1)
        whole = matching[
            : next((at for at, each in enumerate(matching) if each.offset == self.damaged), None)
        ]
        taken = tuple(whole[: min(limits.max_records, self.page_records)])
        end = len(self.partitions[partition])
        is_complete = len(taken) == len(matching)
        return KeyPage(taken, end if is_complete else taken[-1].offset + 1, is_complete)

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> dict[int, int]:
        return {
            partition: next(
                (each.offset for each in self.partitions[partition] if each.timestamp >= time_ms),
                len(self.partitions[partition]),
            )
            for partition in partitions
        }


class Stage:
    def __init__(self, partitions: int = 2) -> None:
        self.clock = ManualClock()
        self.topic = MemoryTopic()
        self.config = BrokerConfig({"mailbox.num.partitions": str(partitions)})
        self.mailbox = self.another_gateway()

    def another_gateway(self) -> Mailbox:
        return Mailbox(self.topic, self.config, self.clock)  # type: ignore[arg-type]

    def append(self, user: str, message: str, headers: Headers = ()) -> None:
        """Append a record as a Kafka producer that knows the active partitions."""
        count = self.topic.active or len(self.topic.partitions)
        log = self.topic.partitions[partition_for(user.encode(), count)]
        log.append(Record(len(log), self.clock.now_ms(), user.encode(), message.encode(), headers))

    async def grow(self, partitions: int) -> None:
        """Add partitions, and advance the clock until they are used."""
        self.topic.grow(partitions)
        await self._follow()

    async def shrink(self, active: int) -> None:
        """Let partitions drain, and advance the clock until the others are used."""
        self.topic.shrink(active)
        await self._follow()

    async def _follow(self) -> None:
        self.clock.advance(6)
        await self.received("nobody")
        self.clock.advance(13)
        await self.received("nobody")

    async def received(self, user: str, last: str | None = None, limit: int = 1_000) -> list[str]:
        limits = Limits(limit, 1 << 20)
        found = await self.mailbox.receive(user, last, limits, 0)
        reply: asyncio.Future[list[MailboxMessage]] = asyncio.get_running_loop().create_future()
        if self.mailbox.begin_receive(user, last, limits, 0, reply) is not None:
            assert await reply == found, "without a task too"
        return [each.message for each in found]
