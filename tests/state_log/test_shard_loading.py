"""Loading of a coordinator's shards: when each is loaded, which errors requests get before, and when a shard
is loaded again.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.clock import SystemClock
from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.observability.logs import Logger
from penstock.replication.waiting import CommitCallback
from penstock.state_log.partitioning import partition_of
from penstock.state_log.shards import CoordinatorContext, Shards
from penstock.storage.log import AppendInfo

TOPIC = "__states"
ME = BrokerId(1)
PARTITIONS = 3
EPOCH = LeaderEpoch(4)


class FakeReplica:
    """Replica of a leader whose log ends at `end`; `commit` raises its high watermark to the end."""

    def __init__(self, index: int, end: int = 0) -> None:
        self.name = TopicPartition(TOPIC, index)
        self.log = SimpleNamespace(failed=False, log_start_offset=Offset(0), log_end_offset=Offset(end))
        self.partition = SimpleNamespace(leader_epoch=EPOCH, is_held=False)
        self.high_watermark = 0
        self.waiting: list[CommitCallback] = []

    def when_committed(self, info: AppendInfo, callback: CommitCallback) -> bool:
        if self.high_watermark > info.last_offset:
            return True
        self.waiting.append(callback)
        return False

    def commit(self) -> None:
        self.high_watermark = self.log.log_end_offset
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(None)


class FakeShard:
    has_failed = is_in_doubt = False

    def __init__(self, partition: int, *, passed_over_damage: bool) -> None:
        self.partition = partition
        self.passed_over_damage = passed_over_damage
        self.closed: ErrorCode | None = None

    def close(self, code: ErrorCode) -> None:
        self.closed = code


class Bench:
    def __init__(self) -> None:
        self.replicas = [FakeReplica(index) for index in range(PARTITIONS)]
        self.damaged: set[int] = set()
        self.loads: list[int] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        state = PartitionState(ME, EPOCH, (ME,), (ME,), 0)
        topic = TopicImage(TOPIC, TopicId(UUID(int=1)), (state,) * PARTITIONS, {}, 0)
        metadata: Any = SimpleNamespace(image=ClusterImage("c").with_topics([topic]), config=BrokerConfig({}))
        manager: Any = SimpleNamespace(get=self._get, settled=self._settled)
        nothing: Any = None
        log = Logger(SystemClock(), lambda line: None, lambda now, level, text, fields: text)
        self.shards: Shards[Any] = Shards(
            TOPIC,
            nothing,
            CoordinatorContext(ME, metadata, nothing, manager, SystemClock(), nothing, log),
            self._load,
            self._on_loaded,
        )

    def _get(self, topic: str, index: int) -> FakeReplica:
        assert topic == TOPIC
        return self.replicas[index]

    async def _settled(self) -> None: ...

    async def _on_loaded(self, shard: FakeShard) -> None: ...

    async def _load(self, index: int, replica: object) -> FakeShard:
        passed_over = index in self.damaged
        self.loads.append(index)
        await self.may_read.wait()
        return FakeShard(index, passed_over_damage=passed_over)

    async def start(self) -> None:
        self.shards.start()
        await turns()

    @property
    def loaded(self) -> list[int]:
        return sorted(shard.partition for shard in self.shards.loaded)

    def code_of(self, index: int) -> ErrorCode:
        name = next(str(number) for number in range(100) if partition_of(str(number), PARTITIONS) == index)
        try:
            self.shards.of(name)
        except BrokerError as error:
            return error.code
        return ErrorCode.none

    def repair(self, index: int) -> None:
        self.damaged.discard(index)
        replica: Any = self.replicas[index]
        self.shards.on_repaired(replica)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_shard_with_uncommitted_records_does_not_delay_other_shards() -> None:
    bench = Bench()
    bench.replicas[0] = FakeReplica(0, end=5)
    await bench.start()
    assert bench.loaded == [1, 2]
    assert bench.code_of(0) is ErrorCode.coordinator_load_in_progress
    bench.replicas[0].commit()
    await turns()
    assert bench.loaded == [0, 1, 2]
    assert bench.loads.count(0) == 1
    await bench.shards.stop()


async def test_shard_that_cannot_commit_under_min_isr_is_not_available() -> None:
    bench = Bench()
    bench.replicas[0] = FakeReplica(0, end=5)
    bench.replicas[0].partition.is_held = True
    await bench.start()
    assert bench.code_of(0) is ErrorCode.coordinator_not_available
    assert bench.code_of(1) is ErrorCode.none
    bench.replicas[0].partition.is_held = False
    bench.replicas[0].commit()
    await turns()
    assert bench.code_of(0) is ErrorCode.none
    await bench.shards.stop()


async def test_records_appended_while_a_shard_waits_are_committed_before_it_is_loaded() -> None:
    bench = Bench()
    bench.replicas[0] = FakeReplica(0, end=5)
    await bench.start()
    waiting, bench.replicas[0].waiting = bench.replicas[0].waiting, []
    bench.replicas[0].high_watermark = 5
    bench.replicas[0].log.log_end_offset = Offset(6)
    for callback in waiting:
        callback(None)
    await turns()
    assert 0 not in bench.loaded
    bench.replicas[0].commit()
    await turns()
    assert bench.loaded == [0, 1, 2]
    await bench.shards.stop()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_only_a_shard_loaded_around_damage_is_loaded_again_after_repair(is_damaged: bool) -> None:
    bench = Bench()
    bench.damaged = {0} if is_damaged else set()
    await bench.start()
    [before] = [shard for shard in bench.shards.loaded if shard.partition == 0]
    bench.repair(0)
    assert before.closed is (ErrorCode.coordinator_not_available if is_damaged else None)
    await turns()
    assert bench.loaded == [0, 1, 2]
    assert bench.loads.count(0) == (2 if is_damaged else 1)
    bench.repair(0)
    await turns()
    assert bench.loads.count(0) == (2 if is_damaged else 1)
    await bench.shards.stop()


async def test_shard_repaired_while_it_is_loading_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.state_log.shards.RETRY_SECONDS", 0.0)
    bench = Bench()
    bench.damaged = {0}
    bench.may_read.clear()
    await bench.start()
    bench.repair(0)
    bench.may_read.set()
    async with asyncio.timeout(10):
        while bench.loaded != [0, 1, 2]:
            await asyncio.sleep(0)
    assert bench.loads.count(0) == 2
    assert not any(shard.passed_over_damage for shard in bench.shards.loaded)
    await bench.shards.stop()
