"""A shard whose log and markers the test controls: appends are committed, lost or refused one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ProducerId, TopicPartition
from penstock.records.control import Marker
from penstock.state_log.appender import Appender
from penstock.state_log.shard import Shard
from penstock.state_log.timers import Timers
from penstock.transactions.context import TransactionCounts
from penstock.transactions.endings import Ending
from penstock.transactions.record_codec import TransactionRecord, decode_record, encode_record
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import NOBODY, VERSION_1, Identity

T = TypeVar("T")

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
START_MS = 1_700_000_000_000
Done = Callable[[BrokerError | None], None]


class FakeLog:
    """A stand-in for `Appender` whose records wait until the test commits or loses them."""

    def __init__(self, records: Sequence[tuple[bytes, bytes | None]], leader_epoch: int) -> None:
        self.committed = list(records)
        self.waiting: list[tuple[list[TransactionRecord], Done]] = []
        self.replica = SimpleNamespace(
            partition=SimpleNamespace(leader_epoch=leader_epoch),
            log=SimpleNamespace(failed=False),
            is_under_min_insync=False,
        )
        self._closed: BrokerError | None = None

    def add(self, records: Sequence[TransactionRecord], done: Done) -> None:
        if self._closed is not None:
            done(self._closed)
        elif records or self.waiting:
            self.waiting.append((list(records), done))
        else:
            done(None)

    def append_collected(self) -> None:
        """Do nothing: records are in the log already."""

    def check_replicas(self) -> None:
        if self.replica.is_under_min_insync:
            raise BrokerError(ErrorCode.coordinator_not_available)

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            records, done = self.waiting.pop(0)
            self.committed += [encode_record(record) for record in records]
            lacks = self.replica.is_under_min_insync
            done(BrokerError(ErrorCode.not_enough_replicas_after_append) if lacks else None)

    def refuse(self) -> None:
        _, done = self.waiting.pop(0)
        done(BrokerError(ErrorCode.kafka_storage_error))

    def close(self, error: BrokerError) -> None:
        self._closed = error
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(error)


class FakeTimers:
    def __init__(self) -> None:
        self.due: dict[Hashable, int] = {}
        self.ms = 50_000

    def now_ms(self) -> int:
        return self.ms

    def schedule(self, key: Hashable, due_ms: int | None) -> None:
        if due_ms is not None:
            self.due[key] = min(due_ms, self.due.get(key, due_ms))


class Bench:
    """The context of one shard, which can be restarted from its log."""

    def __init__(self, **settings: str) -> None:
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.counts = TransactionCounts()
        self.fake_timers = FakeTimers()
        self.timers = cast(Timers, self.fake_timers)
        self.wall = START_MS
        self.endings: list[Ending] = []
        self.markers: list[tuple[TopicPartition, Marker]] = []
        """Markers as they were written to partitions, by any coordinator."""
        self.lost_shards: list[Shard[Any]] = []
        self._next_id = 100
        self._epoch = 0
        self.start([])

    def start(self, records: Sequence[tuple[bytes, bytes | None]], first_connection: int = 1) -> None:
        self._epoch += 1
        self.endings = []
        self.log = FakeLog(records, self._epoch)
        self.fake_timers.due.clear()
        self.load(first_connection)
        self.shard.resume()

    def load(self, first_connection: int) -> None:
        """Make a shard of the committed records."""
        appender = cast("Appender[TransactionRecord]", self.log)
        self.shard = TransactionShard(0, appender, self, first_connection)
        for key, value in self.log.committed:
            self.shard.apply(decode_record(key, value))

    def crash(self, *, keep: int | None = None) -> None:
        """Restart the coordinator; `keep` is the number of uncommitted batches that survive."""
        records = self.log.committed + [
            encode_record(record) for batch, _ in self.log.waiting[: keep or 0] for record in batch
        ]
        self.shard.close(ErrorCode.not_coordinator)
        self.start(records)

    # --- the context of the shard

    @property
    def id_count(self) -> int:
        return len(self.shard.transactions)

    @property
    def held_count(self) -> int:
        return self.shard.held_count

    @property
    def id_characters(self) -> int:
        return self.shard.id_characters

    def wall_ms(self) -> int:
        return self.wall

    async def new_producer_id(self) -> ProducerId:
        await asyncio.sleep(0)
        self._next_id += 1
        return ProducerId(self._next_id)

    def write_markers(self, ending: Ending) -> None:
        self.endings.append(ending)
        ending.settle(())

    def lost(self, shard: Shard[Any]) -> None:
        self.lost_shards.append(shard)

    # --- actions of tests

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.fake_timers.ms += ms

    def fire(self) -> None:
        """Fire all due deadlines."""
        due = [key for key, due_ms in self.fake_timers.due.items() if due_ms <= self.fake_timers.ms]
        for key in due:
            del self.fake_timers.due[key]
            self.shard.on_due(cast("tuple[int, str]", key)[1])

    def write_marker(self, ending: Ending, partition: TopicPartition) -> None:
        if not ending.is_abandoned:
            self.markers.append((partition, ending.marker))
            ending.settle([partition])

    def write_all(self) -> None:
        for ending in tuple(self.endings):
            for partition in sorted(ending.left):
                self.write_marker(ending, partition)

    async def settle(self, work: Awaitable[T]) -> T:
        """Return the outcome of a request while the log commits and markers are written."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.rest()
        return await task

    async def rest(self) -> None:
        """Commit and write markers until nothing is left to do."""
        await turns()
        while self.log.waiting or any(ending.left and not ending.is_abandoned for ending in self.endings):
            if self.log.waiting:
                self.log.commit()
            self.write_all()
            await turns()

    async def init(self, transactional_id: str = "t", asking: Identity = NOBODY, **options: Any) -> Identity:
        values = {"timeout_ms": 60_000, "is_held": False} | options
        return await self.settle(self.shard.init_producer_id(transactional_id, asking, **values))

    async def add(
        self, producer: Identity, *partitions: TopicPartition, version: int = VERSION_1, id: str = "t"
    ) -> None:
        await self.settle(self.shard.add_partitions(id, producer, partitions or (P0, P1), version))

    async def end(
        self, producer: Identity, commit: bool = True, version: int = VERSION_1, id: str = "t"
    ) -> Identity:
        return await self.settle(self.shard.end(id, producer, commit, version))


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)
