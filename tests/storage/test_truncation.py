"""Truncation of a log at its end and at its start."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_helpers import NOW_MS, append, checkpoint, flush, make_batch, open_manager, read_all, the_log

from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.storage.log_truncation import restart_log, truncate_log

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def make(path: Path, count: int = 40) -> tuple[LogManager, Log, RealDisk]:
    disk = RealDisk(str(path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for number in range(count):
        append(
            log,
            b"%02d" % number,
            timestamp=NOW_MS + number,
            epoch=LeaderEpoch(number // 10),
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
    return manager, log, disk


@pytest.mark.parametrize("offset", [0, 1, 9, 17, 39])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_truncated_records_stay_removed_after_restarts(
    tmp_path: Path, offset: int, checkpointed: bool
) -> None:
    manager, log, disk = make(tmp_path)
    if checkpointed:
        checkpoint(log)
        manager.write_checkpoints()
    flush(log)
    manager.truncate(log, Offset(offset), NOW_MS)
    for _ in range(2):
        assert (log.log_end_offset, log.flushed_offset) == (offset, offset)
        assert [number for number, _ in read_all(log)] == list(range(offset))
        assert log.leader_epochs.latest == ((offset - 1) // 10 if offset else -1)
        found = log.max_timestamp()
        assert (None if found is None else found.offset) == (offset - 1 if offset else None)
        entry = log.producers.get(1)
        assert (entry.batches[-1].last_sequence if entry else -1) == offset - 1
        disk.close()
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk)
        log = the_log(manager, CONFIG)
    assert append(log, b"new", epoch=LeaderEpoch(9)).base_offset == offset


def test_truncation_inside_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    manager, log, _ = make(tmp_path, 3)
    append(log, b"a", b"b", b"c")
    manager.truncate(log, Offset(5), NOW_MS)
    assert log.log_end_offset == 3


def test_truncation_at_the_log_end_changes_nothing(tmp_path: Path) -> None:
    manager, log, _ = make(tmp_path)
    flush(log)
    manager.truncate(log, Offset(40), NOW_MS)
    assert (log.log_end_offset, log.flushed_offset) == (40, 40)


@pytest.mark.parametrize("offset", [-1, 41])
def test_truncation_outside_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    manager, log, _ = make(tmp_path)
    with pytest.raises(BrokerError) as refused:
        manager.truncate(log, Offset(offset), NOW_MS)
    assert refused.value.code is ErrorCode.offset_out_of_range


def test_flush_begun_before_a_truncation_does_not_count(tmp_path: Path) -> None:
    manager, log, _ = make(tmp_path)
    job = log.jobs.begin_flush()
    manager.truncate(log, Offset(10), NOW_MS)
    for number in range(30):
        append(log, b"new %d" % number, epoch=LeaderEpoch(9))
    job.work()
    log.jobs.finish_flush(job)
    assert log.flushed_offset == 0
    flush(log)
    assert log.flushed_offset == 40


def test_old_index_does_not_hide_that_a_segment_was_truncated(tmp_path: Path) -> None:
    """The entry that was stored before the truncation points to the new end: the segment seemed complete."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    first = len(make_batch([b"x" * 50]))
    append(log, b"x" * 50)
    append(log, b"y" * 50)
    assert log.segments[0].index.last(wait=True).position == first
    manager.close(BrokerEpoch(1))
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    manager.truncate(log, Offset(0), NOW_MS)
    append(log, b"x" * 25, b"v" * (first - len(make_batch([b"x" * 25, b""]))))
    assert log.size_bytes == first
    disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert log.log_end_offset == 2


def test_the_log_start_moves_forward_only_and_not_past_the_end(tmp_path: Path) -> None:
    _, log, _ = make(tmp_path)
    log.advance_log_start(Offset(15))
    log.advance_log_start(Offset(7))
    assert log.log_start_offset == 15
    assert log.leader_epochs.entries[0] == (1, 15)
    with pytest.raises(BrokerError) as refused:
        log.advance_log_start(Offset(41))
    assert refused.value.code is ErrorCode.offset_out_of_range
    with pytest.raises(BrokerError):
        log.read(Offset(14), 100, below=Offset(40), at_least_one=True)


def test_segments_below_the_log_start_are_deleted_with_their_indexes(tmp_path: Path) -> None:
    _, log, _ = make(tmp_path)
    checkpoint(log)
    before = len(log.segments)
    log.advance_log_start(Offset(20))
    size = log.size_bytes
    job = log.jobs.begin_delete()
    assert job is not None
    assert log.size_bytes == size - job.size_bytes
    job.work()
    log.jobs.finish_delete(job)
    files = sorted(file.name for file in (tmp_path / log.directory).glob("*.log"))
    indexes = sorted(file.name for file in (tmp_path / log.directory).glob("*.index"))
    assert len(files) == len(log.segments) < before
    assert [name[:20] for name in indexes] == [name[:20] for name in files]
    assert log.segments[0].base_offset <= 20 < log.segments[1].base_offset
    assert read_all(log)[0] == (20, b"20")
    assert log.jobs.begin_delete() is None


def test_a_crash_in_the_middle_of_a_deletion_leaves_a_readable_log(tmp_path: Path) -> None:
    manager, log, disk = make(tmp_path)
    flush(log)
    log.advance_log_start(Offset(20))
    manager.write_checkpoints(both=True)
    job = log.jobs.begin_delete()
    assert job is not None
    (tmp_path / job.segments[0].log_file.path).unlink()
    disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert [number for number, _ in read_all(log)] == list(range(20, 40))
    assert not any((tmp_path / segment.log_file.path).exists() for segment in job.segments)


def test_a_log_emptied_by_deletion_continues_in_a_fresh_segment(tmp_path: Path) -> None:
    _, log, _ = make(tmp_path)
    log.advance_log_start(Offset(40))
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    assert (log.size_bytes, len(log.segments)) == (0, 1)
    for _ in range(3):
        append(log, b"new", epoch=LeaderEpoch(9))
    assert len(log.segments) == 1
    assert [number for number, _ in read_all(log)] == [40, 41, 42]


def delete_below(log: Log, start: Offset) -> None:
    job = log.jobs.begin_delete(start)
    assert job is not None, "there is something to delete"
    job.work()
    log.jobs.finish_delete(job)


def test_a_truncated_active_segment_is_freed_while_records_arrive(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), LogConfig())
    for number in range(10):
        append(log, b"%d" % number)
    flush(log)
    log.advance_log_start(Offset(10))
    append(log, b"meanwhile")
    delete_below(log, Offset(10))
    assert [segment.base_offset for segment in log.segments] == [10]
    assert [value for _, value in read_all(log)] == [b"meanwhile"]


def test_a_truncation_inside_a_large_active_segment_ends_it(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), LogConfig())
    for _ in range(3):
        append(log, bytes(600_000))
    log.advance_log_start(Offset(2))
    append(log, b"next")
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    append(log, b"after")
    assert len(log.segments) == 2, "the new segment begins above the log start"
    flush(log)
    log.advance_log_start(Offset(3))
    delete_below(log, Offset(3))
    assert [segment.base_offset for segment in log.segments] == [3]
    assert [value for _, value in read_all(log)] == [b"next", b"after"]


def test_a_truncation_inside_a_small_active_segment_makes_no_new_one(tmp_path: Path) -> None:
    log = the_log(open_manager(RealDisk(str(tmp_path))), LogConfig())
    for number in range(10):
        append(log, b"%d" % number)
        log.advance_log_start(Offset(max(0, number - 1)))
    assert len(log.segments) == 1


def refuse() -> None:
    raise OSError(errno.ENOSPC, "no space")


@pytest.mark.parametrize("how", ["truncate", "restart", "without its first segment"])
def test_truncation_that_cannot_be_recorded_changes_nothing(tmp_path: Path, how: str) -> None:
    """A full disk must not leave a log end that the files do not have: appends would go behind the old records."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "boot")
    config = LogConfig(segment_bytes=300, index_interval_bytes=100)
    log = the_log(manager, config)
    manager.record_use(BrokerEpoch(1))
    for number in range(12):
        append(log, b"%d" % number)
    flush(log)
    checkpoint(log)
    log.high_watermark = Offset(10)
    manager.write_checkpoints()
    first = 0
    if how == "without its first segment":
        disk.close()
        (tmp_path / log.segments[0].log_file.path).unlink()
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk, "boot")
        log, first = the_log(manager, config), 4
        assert log.damage
    before = log.log_start_offset, log.log_end_offset, log.high_watermark, log.mark, log.closed, log.damage
    assert log.jobs.begin_truncation()
    truncate, offset = (restart_log, 1000) if how == "restart" else (truncate_log, 1 if first == 0 else 0)
    with pytest.raises(OSError, match="no space"):
        truncate(log, Offset(offset), NOW_MS, refuse)
    log.jobs.finish_truncation()
    assert before == (
        log.log_start_offset, log.log_end_offset, log.high_watermark, log.mark, log.closed, log.damage
    )  # fmt: skip
    append(log, b"next")
    assert [offset for offset, _ in read_all(log, first)] == list(range(first, 13))
    disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path)), "boot"), config)
    assert [offset for offset, _ in read_all(log, first)] == list(range(first, 13))
