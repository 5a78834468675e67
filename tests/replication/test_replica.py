from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from penstock.clock import SystemClock
from penstock.config import CleanupPolicy, Durability
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import Marker
from penstock.replication.admission import ACKS_ALL, ACKS_LEADER
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync import InSync
from penstock.replication.projected_log import ScanSlots
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.replica import Replica, ReplicaContext
from penstock.storage.disk import SYNC_ALL_ABOVE, RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.storage.log_truncation import truncate_log
from penstock.threads import Pool

T = TypeVar("T")

NOW_MS = 1_700_000_000_000
ID = TopicId(UUID(int=7))
ME = BrokerId(1)


class ManualThreads:
    """Threads that run work when the test says so, in order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[object]]] = []

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))  # type: ignore[arg-type]
        return future

    def close(self) -> None: ...

    async def settle(self) -> None:
        """Run the loop until only threads could change anything."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def finish_one(self) -> None:
        await self.settle()
        work, future = self._waiting.pop(0)
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - whatever the work raises belongs to who waits for it
            future.set_exception(error)
        await self.settle()

    @property
    def waiting(self) -> int:
        return len(self._waiting)


class FailingDisk(RealDisk):
    """Disk whose syncs can be made to fail."""

    fails = False

    def sync_all(self) -> bool:
        if self.fails:
            raise OSError(errno.EIO, "input/output error")
        return super().sync_all()


class Bench:
    def __init__(self, directory: Path, durability: Durability = Durability.AUTO, **settings: Any) -> None:
        self.disk = FailingDisk(str(directory))
        self.threads = ManualThreads()
        self.rounds: list[float] = []
        self.flusher = Flusher(self.disk, self.threads, SystemClock(), self.rounds.append)
        self._context = StorageContext(self.disk, FileCache(self.disk, 100))
        self._durability = durability
        self._config = LogConfig(**settings)
        self.changed: dict[Replica, None] = {}
        self.refused = RefusedBatches(SystemClock())

    def replica(self, index: int = 0) -> Replica:
        name = TopicPartition("orders", index)
        log = Log.create(self._context, f"logs/orders-{index}", name, ID, self._config)
        slots = ScanSlots(self.threads, SystemClock())
        context = ReplicaContext(
            self.flusher, self.threads, self.refused, self.changed, {}, lambda: None, slots
        )
        replica = Replica(log, self._durability, context)
        replica.become_leader(
            LeaderEpoch(1), InSync(ME, (ME,), frozenset((ME,)), 0, log.log_end_offset, {}, NOW_MS)
        )
        return replica


def batch(*keys: bytes | None, producer_id: int = -1, sequence: int = -1) -> tuple[memoryview, BatchHeader]:
    records = [NewRecord(key, b"value", NOW_MS) for key in keys]
    epoch = 0 if producer_id >= 0 else -1
    content = memoryview(
        build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )
    return content, read_header(content)


def append(replica: Replica, *keys: bytes | None) -> AppendInfo:
    return replica.append_as_leader(*batch(*(keys or (None,))), NOW_MS)


async def test_an_append_is_committed_when_its_flush_is_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    assert not replica.when_committed(append(replica), outcomes.append)
    await bench.threads.settle()
    assert (outcomes, replica.log.high_watermark) == ([], 0)
    await bench.threads.finish_one()
    assert (outcomes, replica.log.high_watermark) == ([None], 1)


async def test_appends_during_a_flush_share_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    append(replica)
    await bench.threads.settle()
    for _ in range(5):
        replica.when_committed(append(replica), outcomes.append)
    await bench.threads.finish_one()
    assert (outcomes, bench.threads.waiting) == ([], 1)
    await bench.threads.finish_one()
    assert (outcomes, bench.threads.waiting) == ([None] * 5, 0)
    assert len(bench.rounds) == 2


async def test_many_dirty_logs_share_one_sync_of_the_disk(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    replicas = [bench.replica(index) for index in range(SYNC_ALL_ABOVE + 1)]
    for replica in replicas:
        append(replica)
    await bench.threads.settle()
    assert bench.threads.waiting == 1
    await bench.threads.finish_one()
    assert [replica.log.high_watermark for replica in replicas] == [1] * len(replicas)


async def test_failed_sync_commits_no_record_and_fails_every_log_of_the_round(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replicas = [bench.replica(index) for index in range(SYNC_ALL_ABOVE + 1)]
    for replica in replicas:
        replica.when_committed(append(replica), outcomes.append)
    bench.disk.fails = True
    await bench.threads.finish_one()
    bench.disk.fails = False
    assert [error.code for error in outcomes] == [ErrorCode.kafka_storage_error] * len(replicas)
    assert bench.threads.waiting == 0, "a failed sync is not tried again"
    for replica in replicas:
        assert replica.log.high_watermark == 0
        with pytest.raises(BrokerError):
            append(replica)


def never_called(error: BrokerError | None) -> None:
    pytest.fail(f"called back with {error}")


async def test_durability_os_commits_an_append_without_a_flush(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Durability.OS)
    replica = bench.replica()
    assert replica.when_committed(append(replica), never_called)
    await bench.threads.settle()
    assert bench.threads.waiting == 0


async def test_a_retry_waits_for_its_original_to_be_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    replica.append_as_leader(*batch(None, producer_id=9, sequence=0), NOW_MS)
    retried = replica.append_as_leader(*batch(None, producer_id=9, sequence=0), NOW_MS)
    assert retried.duplicate
    assert retried.base_offset == 0
    assert not replica.when_committed(retried, outcomes.append)
    await bench.threads.finish_one()
    assert outcomes == [None]


def compacted(directory: Path) -> Bench:
    return Bench(directory, Durability.OS, cleanup_policy=(CleanupPolicy.COMPACT,))


async def test_second_batch_of_a_producer_waits_behind_its_held_first_batch(tmp_path: Path) -> None:
    """A producer's second batch must not be appended before its first, whose records are still being checked."""
    bench = compacted(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    assert replica.append(batch(b"a", producer_id=9, sequence=0)[0], NOW_MS, outcomes.append) is None
    replica.append(batch(b"b", producer_id=9, sequence=1)[0], NOW_MS, outcomes.append)
    await bench.threads.settle()
    assert bench.threads.waiting == 1, "one at a time"
    await bench.threads.finish_one()
    await bench.threads.finish_one()
    assert [info.base_offset for info in outcomes] == [0, 1]


async def test_a_batch_with_bad_records_is_refused_and_the_next_continues(tmp_path: Path) -> None:
    bench = compacted(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    replica.append(batch(None)[0], NOW_MS, outcomes.append)
    replica.append(batch(b"key")[0], NOW_MS, outcomes.append)
    await bench.threads.finish_one()
    await bench.threads.finish_one()
    assert outcomes[0].code is ErrorCode.invalid_record
    assert outcomes[1].base_offset == 0


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
async def test_min_insync_replicas_applies_when_a_held_batch_is_appended(tmp_path: Path, acks: int) -> None:
    bench = compacted(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    assert replica.append(batch(b"a")[0], NOW_MS, outcomes.append, acks=acks) is None
    replica.min_insync_replicas = 2
    await bench.threads.finish_one()
    if acks == ACKS_ALL:
        assert [error.code for error in outcomes] == [ErrorCode.not_enough_replicas]
        assert replica.log.log_end_offset == 0
    else:
        assert [info.base_offset for info in outcomes] == [0]


async def test_waiting_requests_fail_when_the_partition_is_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    woken: list[bool] = []
    replica = bench.replica()
    replica.when_committed(append(replica), outcomes.append)
    replica.data_waiters.add(lambda: woken.append(True))
    replica.retire()
    assert [error.code for error in outcomes] == [ErrorCode.not_leader_or_follower]
    assert woken == [True]


@pytest.mark.parametrize(
    ("asked", "code"),
    [(-1, None), (1, None), (0, ErrorCode.fenced_leader_epoch), (2, ErrorCode.unknown_leader_epoch)],
)
def test_clients_with_another_leader_epoch_are_refused(
    tmp_path: Path, asked: int, code: ErrorCode | None
) -> None:
    replica = Bench(tmp_path, Durability.OS).replica()
    try:
        replica.check_leader_epoch(asked)
        outcome = None
    except BrokerError as error:
        outcome = error.code
    assert outcome is code


async def test_held_batch_is_not_appended_after_the_log_closed(tmp_path: Path) -> None:
    bench = compacted(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    replica.append(batch(b"a")[0], NOW_MS, outcomes.append)
    replica.append(batch(b"b")[0], NOW_MS, outcomes.append)
    replica.fail_held_appends()
    assert [error.code for error in outcomes] == [ErrorCode.not_leader_or_follower] * 2
    await bench.threads.finish_one()
    assert bench.threads.waiting == 0
    assert replica.log.log_end_offset == 0
    assert len(outcomes) == 2


async def test_record_check_that_raises_fails_only_its_own_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted(tmp_path)
    outcomes: list[Any] = []
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    replica = bench.replica()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    replica.append(batch(b"a")[0], NOW_MS, outcomes.append)
    replica.append(batch(b"b")[0], NOW_MS, outcomes.append)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.replication.held_appends.check_records", broken)
        await bench.threads.finish_one()
    await bench.threads.finish_one()
    assert outcomes[0].code is ErrorCode.kafka_storage_error
    assert outcomes[1].base_offset == 0
    assert isinstance(problems[0], ZeroDivisionError)


async def test_flush_waiters_fail_when_a_write_fails_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    replica.when_committed(append(replica), outcomes.append)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("penstock.storage.disk.RealFile.pwrite", broken)
    with pytest.raises(BrokerError):
        append(replica)
    assert [error.code for error in outcomes] == [ErrorCode.kafka_storage_error]


async def test_unawaited_appends_are_written_back_in_the_background(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Durability.OS)
    replica = bench.replica()
    big = memoryview(build_batch([NewRecord(None, bytes(1 << 20), NOW_MS)]))
    for _ in range(8):
        replica.append_as_leader(big, read_header(big), NOW_MS)
    assert bench.threads.waiting == 1
    await bench.threads.finish_one()
    assert bench.threads.waiting == 0
    assert replica.log.flushed_offset == 0, "written back is not durable"


async def test_repeated_marker_is_written_once_while_it_cannot_be_committed(
    tmp_path: Path,
) -> None:
    """The coordinator repeats the marker; without new epochs (version 1) only the log end tells a repeat."""
    bench = Bench(tmp_path)
    replica = bench.replica()
    first, taken_over = Marker(7, 0, True, 3), Marker(7, 0, True, 4)

    def write(marker: Marker) -> AppendInfo:
        return replica.append_marker(marker, is_epoch_new=False, now_ms=NOW_MS)

    assert (write(first).last_offset, write(first).last_offset) == (0, 0)
    assert replica.log.log_end_offset == 1
    assert write(taken_over).last_offset == 1, "it fences the coordinator before"
    await bench.threads.settle()
    await bench.threads.finish_one()
    assert replica.log.high_watermark == 2
    assert write(taken_over).last_offset == 2, "of the next transaction, perhaps"


async def test_marker_that_is_in_the_log_still_refuses_held_batches(tmp_path: Path) -> None:
    replica = Bench(tmp_path).replica()
    marker = Marker(7, 0, True, 3)
    replica.append_marker(marker, is_epoch_new=False, now_ms=NOW_MS)
    refused: list[BrokerError] = []

    async def verify() -> ErrorCode:
        return ErrorCode.none

    _, header = batch(b"k", producer_id=7, sequence=0)
    replica.verified.hold(header, verify, lambda: None, refused.append)
    assert replica.append_marker(marker, is_epoch_new=False, now_ms=NOW_MS).duplicate
    assert [error.code for error in refused] == [ErrorCode.invalid_txn_state]


async def test_flush_waiter_of_truncated_records_waits_for_the_remaining_ones(tmp_path: Path) -> None:
    """A follower without a callback would never fetch again."""
    bench = Bench(tmp_path)
    outcomes: list[Any] = []
    replica = bench.replica()
    for _ in range(3):
        append(replica)
    replica.become_follower(LeaderEpoch(2))
    assert not replica.when_flushed(outcomes.append)
    await bench.threads.settle()
    assert replica.log.jobs.begin_truncation()
    replica.truncating = asyncio.get_running_loop().create_future()
    await bench.threads.finish_one()
    truncate_log(replica.log, Offset(1), NOW_MS, lambda: None)
    replica.log.jobs.finish_truncation()
    replica.on_truncated()
    await bench.threads.finish_one()
    assert outcomes == [None]
