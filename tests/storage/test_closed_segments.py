"""The list of closed segments: files that are deleted, shortened or replaced while the broker is down are damage."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compaction_helpers import compact, compacting, pairs, put, roll
from log_helpers import NOW_MS, TOPIC_ID, append, checkpoint, flush, open_manager, read_all, the_log

from penstock.errors import CorruptLog, StorageError
from penstock.model import BrokerEpoch, Offset
from penstock.storage.closed_segments import (
    CLOSED_SEGMENTS_FILE,
    LOST,
    NO_RECORDS,
    ClosedSegment,
    ClosedSegments,
)
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

COUNT = 20
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
BOOT = "boot"


def reopen(path: Path) -> tuple[LogManager, Log, RealDisk]:
    disk = RealDisk(str(path))
    manager = open_manager(disk, BOOT)
    log = the_log(manager, CONFIG)
    manager.record_use(BrokerEpoch(1))
    return manager, log, disk


def stopped(path: Path, how: str) -> list[Path]:
    """Leave a log of segments with four records each; return its segment files."""
    manager, log, disk = reopen(path)
    for number in range(COUNT):
        append(log, b"%02d" % number)
    if how == "checkpoint":
        checkpoint(log)
        manager.write_checkpoints()
    if how == "clean stop":
        manager.close(BrokerEpoch(1))
    else:
        disk.close()
    return sorted((path / log.directory).glob("*.log"))


@pytest.fixture(params=["clean stop", "checkpoint"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    files = stopped(tmp_path, request.param)
    assert [int(file.stem) for file in files] == [0, 4, 8, 12, 16]
    return files


def check_damage(path: Path, base_offset: int, end_offset: int) -> None:
    """Check at three starts that only this range is unreadable and that the partition counts as lost."""
    for _ in range(3):
        manager, log, disk = reopen(path)
        assert [(each.base_offset, each.end_offset) for each in log.damage] == [(base_offset, end_offset)]
        assert manager.lost_partitions == {(TOPIC_ID, 0)}
        assert (log.log_start_offset, log.log_end_offset) == (0, COUNT)
        for offset in range(COUNT):
            if base_offset <= offset < end_offset:
                with pytest.raises(CorruptLog, match=f"orders-0: offsets {base_offset} to {end_offset - 1}"):
                    log.read(Offset(offset), 1, below=Offset(COUNT), at_least_one=True, wait=True)
            else:
                found = log.read(Offset(offset), 1, below=Offset(COUNT), at_least_one=True, wait=True)
                assert int.from_bytes(found.read()[:8], "big") == offset
        assert [offset for offset, _ in read_all(log, end_offset)] == list(range(end_offset, COUNT))
        disk.close()


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def halve(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def exchange(first: Path, second: Path) -> None:
    other = first.with_suffix(".other")
    first.rename(other)
    second.rename(first)
    other.rename(second)


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("ruin", "lost_from"), [(remove, 0), (empty, 0), (halve, 2), (tear, 3)], ids=lambda value: str(value)[:15]
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_missing_or_shortened_segment_is_damage(
    files: list[Path], tmp_path: Path, place: int, ruin: Callable[[Path], None], lost_from: int
) -> None:
    base_offset = int(files[place].stem)
    ruin(files[place])
    check_damage(tmp_path, base_offset + lost_from, base_offset + 4)


def test_two_missing_segments_are_two_damaged_ranges(files: list[Path], tmp_path: Path) -> None:
    files[1].unlink()
    files[2].unlink()
    _, log, _ = reopen(tmp_path)
    assert [(each.base_offset, each.end_offset) for each in log.damage] == [(4, 8), (8, 12)]


def test_swapped_segments_of_equal_size_are_damage(files: list[Path], tmp_path: Path) -> None:
    content = files[1].read_bytes(), files[2].read_bytes()
    assert len(content[0]) == len(content[1])
    exchange(files[1], files[2])
    for _ in range(2):
        _, log, disk = reopen(tmp_path)
        assert [(each.base_offset, each.end_offset) for each in log.damage] == [(4, 8), (8, 12)]
        assert [offset for offset, _ in read_all(log, 12)] == list(range(12, COUNT))
        disk.close()
    kept = [Path(f"{file}.damaged").read_bytes() for file in (files[2], files[1])]
    assert kept == list(content), "the bytes are kept for the operator"


def test_segment_overwritten_by_one_of_another_partition_is_damage(files: list[Path], tmp_path: Path) -> None:
    content = files[1].read_bytes()
    other = tmp_path / "other"
    _, log, disk = reopen(other)
    for number in range(8):
        append(log, b"%02d" % (number + 50))
    disk.close()
    files[1].write_bytes(sorted((other / log.directory).glob("*.log"))[1].read_bytes())
    assert len(files[1].read_bytes()) == len(content)
    shutil.rmtree(other)
    check_damage(tmp_path, 4, 8)


def test_segment_that_is_put_back_heals_the_log(files: list[Path], tmp_path: Path) -> None:
    content = files[2].read_bytes()
    files[2].unlink()
    check_damage(tmp_path, 8, 12)
    files[2].write_bytes(content)
    _, log, _ = reopen(tmp_path)
    assert log.damage == ()
    assert len(read_all(log)) == COUNT


def test_touched_files_are_checked_once_and_valid(files: list[Path], tmp_path: Path) -> None:
    for file in files:
        os.utime(file, ns=(1, 1))
    before = (files[0].parent / CLOSED_SEGMENTS_FILE).read_bytes()
    _, log, disk = reopen(tmp_path)
    assert log.damage == ()
    assert len(read_all(log)) == COUNT
    disk.close()
    assert (files[0].parent / CLOSED_SEGMENTS_FILE).read_bytes() != before


@pytest.mark.parametrize("content", [None, b"", b"rubbish" * 20])
def test_lost_list_is_rebuilt_from_the_segments(
    files: list[Path], tmp_path: Path, content: bytes | None
) -> None:
    """Directories of earlier versions have no list."""
    path = files[0].parent / CLOSED_SEGMENTS_FILE
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    _, log, disk = reopen(tmp_path)
    assert log.damage == ()
    assert len(read_all(log)) == COUNT
    disk.close()
    assert path.read_bytes() == before
    files[1].unlink()
    check_damage(tmp_path, 4, 8)


def test_segment_deleted_within_one_boot_before_a_checkpoint_is_damage(tmp_path: Path) -> None:
    files = stopped(tmp_path, "kill")
    files[2].unlink()
    check_damage(tmp_path, 8, 12)


def test_first_segment_deleted_before_a_checkpoint_is_damage(tmp_path: Path) -> None:
    files = stopped(tmp_path, "kill")
    files[0].unlink()
    check_damage(tmp_path, 0, 4)


def test_all_segments_deleted_is_damage(files: list[Path], tmp_path: Path) -> None:
    for file in files:
        file.unlink()
    for _ in range(2):
        manager, log, disk = reopen(tmp_path)
        assert manager.lost_partitions == {(TOPIC_ID, 0)}
        assert (log.log_start_offset, log.log_end_offset) == (0, COUNT)
        for offset in (0, COUNT - 1):
            with pytest.raises(CorruptLog):
                log.read(Offset(offset), 1, below=Offset(COUNT), at_least_one=True, wait=True)
        disk.close()
    _, log, _ = reopen(tmp_path)
    assert append(log, b"next").base_offset == COUNT
    assert read_all(log, COUNT) == [(COUNT, b"next")]


def test_truncation_to_the_start_of_the_damage_heals_the_log(files: list[Path], tmp_path: Path) -> None:
    files[2].unlink()
    manager, log, disk = reopen(tmp_path)
    manager.truncate(log, Offset(10), NOW_MS)
    assert (log.log_end_offset, log.damage) == (8, ())
    for number in range(8, COUNT):
        append(log, b"%02d" % number)
    disk.close()
    manager, log, _ = reopen(tmp_path)
    assert (log.damage, manager.lost_partitions) == ((), frozenset())
    assert len(read_all(log)) == COUNT


def test_log_start_above_the_damage_heals_the_log(files: list[Path], tmp_path: Path) -> None:
    files[1].unlink()
    manager, log, disk = reopen(tmp_path)
    log.advance_log_start(Offset(9))
    manager.write_checkpoints()
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    disk.close()
    manager, log, _ = reopen(tmp_path)
    assert (log.damage, manager.lost_partitions) == ((), frozenset())
    assert log.closed.start_offset == 8


def test_deleted_segments_are_not_missed_when_both_checkpoints_are_lost(
    files: list[Path], tmp_path: Path
) -> None:
    manager, log, disk = reopen(tmp_path)
    log.advance_log_start(Offset(9))
    manager.write_checkpoints()
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    disk.close()
    for copy in tmp_path.glob("checkpoint.*"):
        copy.write_bytes(b"rubbish")
    _, log, _ = reopen(tmp_path)
    assert (log.log_start_offset, log.damage) == (8, ())


def test_missing_segment_of_a_compacted_log_is_damage_but_gaps_are_not(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, BOOT)
    log = the_log(manager, compacting(segment_bytes=800))
    for number in range(30):
        put(log, (b"key %d" % (number % 7), b"%d" % number), (b"once %d" % number, b"x"))
    roll(log)
    assert compact(log, manager.context.files)
    manager.close(BrokerEpoch(1))
    expected = pairs(log)
    manager = open_manager(RealDisk(str(tmp_path)), BOOT)
    log = the_log(manager)
    assert (log.damage, pairs(log)) == ((), expected)
    missing = log.segments[1]
    end_offset = log.segments[2].base_offset
    (tmp_path / missing.log_file.path).unlink()
    shutil.copytree(tmp_path, tmp_path / "copy")
    log = the_log(open_manager(RealDisk(str(tmp_path / "copy")), BOOT))
    assert [(each.base_offset, each.end_offset) for each in log.damage] == [(missing.base_offset, end_offset)]


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_causes_no_damage_of_listed_segments(seed: int) -> None:
    disk = SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for turn in range(4):
        for number in range(seed % 7 + 3):
            append(log, b"%d" % number * 40)
        flush(log)
        if turn % 2:
            checkpoint(log)
            manager.write_checkpoints()
        end_offset = log.log_end_offset
        append(log, b"unsynced" * 30)
        disk = disk.power_loss(random.Random(seed + turn))
        manager = open_manager(disk)
        log = the_log(manager, CONFIG)
        assert (log.damage, manager.lost_partitions) == ((), frozenset())
        assert log.log_end_offset >= end_offset


def test_list_is_decoded_as_it_was_encoded() -> None:
    closed = ClosedSegments(
        Offset(5),
        (
            ClosedSegment(5, 8, NO_RECORDS),
            ClosedSegment(8, 2**40, 4711, 2**63, 1_700_000_000_000_000_000, 2**32 - 1),
            ClosedSegment(2**40, 2**40 + 1, LOST),
        ),
    )
    assert ClosedSegments.decode(closed.encode()) == closed
    content = closed.encode()
    for cut in range(len(content)):
        with pytest.raises(StorageError):
            ClosedSegments.decode(content[:cut])


@pytest.mark.parametrize("content", [None, b"rubbish"], ids=["earlier version", "damaged list"])
def test_missing_segment_is_damage_without_a_list_too(
    files: list[Path], tmp_path: Path, content: bytes | None
) -> None:
    """The index of a closed segment names the base offset of the next one."""
    path = files[0].parent / CLOSED_SEGMENTS_FILE
    path.unlink() if content is None else path.write_bytes(content)
    files[2].unlink()
    check_damage(tmp_path, 8, 12)


def test_gap_that_an_earlier_version_left_on_a_follower_is_no_damage(tmp_path: Path) -> None:
    """An earlier version named a segment after its first batch, and closed the index of the former segment there."""
    manager, log, _ = reopen(tmp_path)
    for number in range(8):
        append(log, b"%02d" % number)
    log.segment_list.start(Offset(50), NOW_MS, memoryview(b""))
    log.log_end_offset = Offset(50)
    append(log, b"50")
    manager.close(BrokerEpoch(1))
    (tmp_path / log.directory / CLOSED_SEGMENTS_FILE).unlink()
    manager, log, _ = reopen(tmp_path)
    assert (log.damage, manager.lost_partitions) == ((), frozenset())
    assert [offset for offset, _ in read_all(log)] == [*range(8), 50]


def test_log_directory_restored_from_a_copy_is_a_lost_partition(files: list[Path], tmp_path: Path) -> None:
    """Records that were written after the copy was made may be missing without a trace."""
    directory, copy = files[0].parent, tmp_path / "copy"
    directory.rename(copy)
    directory.mkdir()
    for file in copy.iterdir():
        shutil.copyfile(file, directory / file.name)
    manager, log, disk = reopen(tmp_path)
    assert not manager.is_copy
    assert manager.lost_partitions == {(TOPIC_ID, 0)}
    assert len(read_all(log)) == COUNT
    disk.close()
    manager, log, _ = reopen(tmp_path)
    assert manager.lost_partitions == frozenset()


def test_all_segments_below_the_recovery_mark_missing_is_damage(tmp_path: Path) -> None:
    files = stopped(tmp_path, "checkpoint")
    manager, log, disk = reopen(tmp_path)
    for number in range(COUNT, COUNT + 8):
        append(log, b"%02d" % number)
    flush(log)
    disk.close()
    (files[0].parent / CLOSED_SEGMENTS_FILE).unlink()
    for file in files:
        file.unlink()
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "another boot")
    log = the_log(manager, CONFIG)
    assert [(each.base_offset, each.end_offset) for each in log.damage] == [(0, COUNT)]
    assert [offset for offset, _ in read_all(log, COUNT)] == list(range(COUNT, COUNT + 8))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2), (2, 3)])
def test_exchanged_segments_are_damage_before_they_are_listed(
    tmp_path: Path, first: int, second: int
) -> None:
    files = stopped(tmp_path, "kill")
    exchange(files[first], files[second])
    base_offset, end_offset = 4 * first, 4 * second + 4
    for _ in range(3):
        manager, log, disk = reopen(tmp_path)
        assert manager.lost_partitions == {(TOPIC_ID, 0)}
        assert log.log_end_offset == COUNT
        for offset in range(base_offset, end_offset):
            with pytest.raises(CorruptLog):
                log.read(Offset(offset), 1, below=Offset(COUNT), at_least_one=True, wait=True)
        assert [offset for offset, _ in read_all(log, end_offset)] == list(range(end_offset, COUNT))
        disk.close()
