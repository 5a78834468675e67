"""Bugs that simulation seeds found, each as the smallest sequence that shows it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from compaction_helpers import compact, compacting, pairs, put, roll
from log_helpers import append, checkpoint, flush, open_manager, read_all, the_log

from penstock.errors import StorageError
from penstock.model import Offset
from penstock.storage.disk import RealDisk
from penstock.storage.log_config import LogConfig
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

CONFIG = LogConfig(segment_bytes=300)


def test_name_of_a_segment_begun_during_a_flush_is_synced_by_the_next() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))
        log = the_log(open_manager(disk), CONFIG)
        append(log, b"x" * 200)
        flush(log)
        append(log, b"x" * 200)
        job = log.jobs.begin_flush()
        job.work()
        append(log, b"x" * 200)
        log.jobs.finish_flush(job)
        flush(log)
        survivor = disk.power_loss(random.Random(seed))
        assert the_log(open_manager(survivor), CONFIG).log_end_offset == 3


def test_empty_last_segment_is_the_log_end(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    append(log, b"x" * 250)
    checkpoint(log)
    manager.write_checkpoints()
    for _ in range(3):
        append(log, b"x" * 250)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    empty = tmp_path / log.segments[1].log_file.path
    disk.close()
    empty.write_bytes(b"")
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert log.log_end_offset == 1
    assert [offset for offset, _ in read_all(log)] == [0]


def test_hole_before_the_first_checkpoint_is_the_log_end(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), CONFIG)
    for _ in range(3):
        append(log, b"x" * 250)
    missing = tmp_path / log.segments[1].log_file.path
    disk.close()
    missing.unlink()
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert [offset for offset, _ in read_all(log)] == [0]


def test_hole_below_the_log_start_keeps_all_records_above(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for _ in range(8):
        append(log, b"x" * 250)
    flush(log)
    log.advance_log_start(Offset(6))
    manager.write_checkpoints(both=True)
    job = log.jobs.begin_delete()
    assert job is not None
    (tmp_path / job.segments[3].log_file.path).unlink()  # the removals reach the disk in any order
    disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert [offset for offset, _ in read_all(log)] == [6, 7]


def test_compacted_segment_of_the_marked_size_does_not_fit_the_mark(
    tmp_path: Path,
) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, compacting())
    put(log, (b"stays", b"1"))
    checkpoint(log)
    manager.write_checkpoints(both=True)
    marked_bytes = log.mark.position
    put(log, (b"goes", b"1"))
    roll(log)
    put(log, (b"goes", b"2"))
    roll(log)
    assert compact(log, manager.context.files)
    assert log.segments[0].size == marked_bytes
    expected = pairs(log)
    disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))), compacting())
    assert pairs(log) == expected


def test_deletion_stops_at_the_checkpointed_log_start(tmp_path: Path) -> None:
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    for _ in range(8):
        append(log, b"x" * 250)
    log.advance_log_start(Offset(6))
    job = log.jobs.begin_delete(below=Offset(2))
    assert job is not None
    assert [segment.base_offset for segment in job.segments] == [0, 1]
    log.jobs.finish_delete(job)
    assert log.jobs.can_delete()


def test_directory_created_before_a_crash_becomes_durable() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))
        manager = open_manager(disk)
        disk.faults.fail("sync_dir")
        with pytest.raises(StorageError):
            the_log(manager)
        restarted = disk.process_crash()
        log = the_log(open_manager(restarted))
        append(log, b"x")
        flush(log)
        survivor = restarted.power_loss(random.Random(seed))
        assert the_log(open_manager(survivor)).log_end_offset == 1


def test_leftover_of_a_failed_append_does_not_hide_the_next_segment(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), CONFIG)
    append(log, b"x" * 100)
    append(log, b"x" * 250)
    flush(log)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    first = tmp_path / log.segments[0].log_file.path
    disk.close()
    first.write_bytes(first.read_bytes() + b"half a bat")
    log = the_log(open_manager(RealDisk(str(tmp_path))), CONFIG)
    assert [offset for offset, _ in read_all(log)] == [0, 1]
    assert log.segments[0].size == first.stat().st_size


def test_name_of_an_empty_segment_is_synced_at_start() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))
        manager = open_manager(disk)
        log = the_log(manager)
        manager.write_checkpoints(both=True)
        disk.open(f"{log.directory}/{0:020d}.log", create=True)  # the append that created it died here
        restarted = disk.process_crash()
        log = the_log(open_manager(restarted))
        append(log, b"x")
        flush(log)
        survivor = restarted.power_loss(random.Random(seed))
        assert [offset for offset, _ in read_all(the_log(open_manager(survivor)))] == [0]


def test_checkpoint_after_a_failed_flush_writes_no_index() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))
        log = the_log(open_manager(disk), LogConfig(segment_bytes=300, index_interval_bytes=1))
        append(log, b"x" * 100)
        flush(log)
        append(log, b"y" * 100)
        failing = log.jobs.begin_flush()
        append(log, b"z" * 250)
        checkpoint = log.jobs.begin_checkpoint()
        assert checkpoint is not None
        disk.faults.fail("sync")
        with pytest.raises(OSError):
            failing.work()
        with pytest.raises(
            OSError
        ):  # its own syncs have nothing to write; the loop does not know of the failure yet
            checkpoint.work()
        survivor = disk.power_loss(random.Random(seed))
        values = [value for _, value in read_all(the_log(open_manager(survivor)))]
        assert values == [b"x" * 100, b"y" * 100, b"z" * 250][: len(values)]
