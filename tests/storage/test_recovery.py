"""Recovery: torn tails at every byte, every kind of damage to every file, and damage to synced records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_helpers import NOW_MS, TOPIC_ID, append, checkpoint, flush, open_manager, read_all, the_log

from penstock.errors import CorruptLog
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.storage.disk import RealDisk
from penstock.storage.index import ENTRY_SIZE
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager

CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=150)

Observation = tuple[object, ...]


def observe(log: Log) -> Observation:
    """Everything that a client can observe: records by offset and by time, retries, epochs, bounds."""
    times = [log.find_timestamp(NOW_MS + shift, log.log_end_offset) for shift in range(-5, 105, 7)]
    producers = {key: (entry.epoch, entry.batches) for key, entry in log.producers.copy().items()}
    starts = [read_all(log, start)[:1] for start in range(log.log_start_offset, log.log_end_offset, 3)]
    bounds = (log.log_start_offset, log.log_end_offset)
    return (read_all(log), starts, times, log.max_timestamp(), producers, log.leader_epochs.entries, bounds)


def fill(log: Log, start: int, stop: int) -> None:
    for number in range(start, stop):
        append(
            log,
            b"value %03d" % number,
            b"x" * (number % 7),
            timestamp=NOW_MS + number,
            producer_id=number % 3,
            producer_epoch=0,
            base_sequence=number // 3 * 2,
            epoch=LeaderEpoch(number // 20),
        )


def build(path: Path, *, clean: bool) -> Observation:
    """A log of several segments with checkpoints, left by a clean stop or by a crash."""
    disk = RealDisk(str(path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for start in range(0, 48, 12):
        fill(log, start, start + 12)
        checkpoint(log)
        manager.write_checkpoints()
    fill(log, 48, 60)
    flush(log)
    seen = observe(log)
    assert len(log.segments) > 6
    if clean:
        manager.close(BrokerEpoch(5))
    else:
        disk.close()
    return seen


@pytest.fixture(scope="module", params=[True, False], ids=["clean stop", "crash"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Observation]:
    path = tmp_path_factory.mktemp("site")
    return path, build(path, clean=request.param)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Observation]:
    path = tmp_path_factory.mktemp("crashed")
    return path, build(path, clean=False)


def reopen(path: Path) -> tuple[LogManager, Log, RealDisk]:
    disk = RealDisk(str(path))
    manager = open_manager(disk)
    return manager, the_log(manager, CONFIG), disk


def check_twice(path: Path, expected: Observation) -> None:
    """Check the log after a restart, after another crash and after a clean stop; appends go on."""
    for turn in range(3):
        manager, log, disk = reopen(path)
        assert observe(log) == expected, turn
        if turn == 1:
            manager.close(BrokerEpoch(6))
        else:
            disk.close()
    _, log, disk = reopen(path)
    end = log.log_end_offset
    fill(log, end // 2, end // 2 + 20)
    assert len(read_all(log, end)) == 40
    disk.close()


# --- torn tails


def active_file(path: Path) -> Path:
    return max((path / "logs").glob("*/*.log"))


def batch_ends(path: Path) -> list[int]:
    """Positions at which the batches of the active segment end."""
    content = active_file(path).read_bytes()
    ends, position = [], 0
    while position < len(content):
        position += int.from_bytes(content[position + 8 : position + 12], "big") + 12
        ends.append(position)
    return ends


@pytest.mark.slow
def test_tail_torn_at_any_byte_is_truncated_to_whole_batches(
    crashed: tuple[Path, Observation], tmp_path: Path
) -> None:
    path, expected = crashed
    records = expected[0]
    assert isinstance(records, list)
    ends = batch_ends(path)
    whole = active_file(path).read_bytes()
    for cut in range(ends[-3], len(whole)):
        torn = tmp_path / str(cut)
        shutil.copytree(path, torn)
        active_file(torn).write_bytes(whole[:cut])
        lost = sum(1 for end in ends if end > cut)
        for _ in range(2):
            _, log, disk = reopen(torn)
            assert log.log_end_offset == 120 - 2 * lost
            assert read_all(log) == records[: len(records) - 2 * lost]
            assert log.segments[-1].file.size() == ends[-1 - lost]
            number = 59 - lost
            assert log.leader_epochs.latest == number // 20
            entry = log.producers.get(number % 3)
            assert entry is not None
            assert entry.batches[-1].last_offset == log.log_end_offset - 1
            disk.close()
        shutil.rmtree(torn)


@pytest.mark.parametrize("rubbish", [b"\x00", b"\xff", b"\x02", b"value"])
def test_garbage_after_the_last_batch_is_truncated(
    crashed: tuple[Path, Observation], tmp_path: Path, rubbish: bytes
) -> None:
    path, expected = crashed
    for length in (1, 11, 12, 60, 61, 62, 5000):
        torn = tmp_path / str(length)
        shutil.copytree(path, torn)
        with active_file(torn).open("ab") as file:
            file.write((rubbish * length)[:length])
        check_twice(torn, expected)


def test_recovery_truncates_the_log_at_a_hole_in_the_tail(
    crashed: tuple[Path, Observation], tmp_path: Path
) -> None:
    """Pages were written out of order: an unsynced batch in the middle is zero."""
    path, _ = crashed
    ends = batch_ends(path)
    torn = tmp_path / "torn"
    shutil.copytree(path, torn)
    with active_file(torn).open("r+b") as file:
        file.seek(ends[0])
        file.write(bytes(ends[1] - ends[0]))
    manager, log, _ = reopen(torn)
    assert log.segments[-1].size == ends[0]
    assert manager.reports[0].cut_bytes == ends[-1] - ends[0]
    assert f"ends at {ends[0]}" in manager.reports[0].problems[0]


def test_segments_behind_a_truncation_are_removed(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), CONFIG)
    fill(log, 0, 40)
    files = sorted((tmp_path / "logs").glob("*/*.log"))
    disk.close()
    files[2].write_bytes(files[2].read_bytes()[:-1])
    _, log, _ = reopen(tmp_path)
    assert len(log.segments) == 3
    assert len(read_all(log)) == log.log_end_offset
    assert not files[3].exists()


def test_log_ends_before_a_segment_whose_name_was_lost(tmp_path: Path) -> None:
    """Its bytes never became durable; those of the next one did. Nothing after it was acknowledged."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    fill(log, 0, 5)
    checkpoint(log)
    manager.write_checkpoints()
    fill(log, 5, 40)
    files = sorted((tmp_path / "logs").glob("*/*.log"))
    disk.close()
    files[3].unlink()
    _, log, _ = reopen(tmp_path)
    assert len(log.segments) == 3
    assert log.log_end_offset == int(files[3].stem)
    assert not files[4].exists()


def test_file_left_by_a_failed_segment_roll_is_ignored(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk), CONFIG)
    fill(log, 0, 40)
    expected = observe(log)
    stray = tmp_path / log.directory / f"{log.segments[2].base_offset + 1:020d}.log"
    disk.close()
    stray.write_bytes(b"rubbish")
    check_twice(tmp_path, expected)
    assert not stray.exists()


# --- damage to files that can be rebuilt


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_to_an_entry(content: bytes) -> bytes:
    return content[: len(content) // ENTRY_SIZE // 2 * ENTRY_SIZE]


def garble(content: bytes) -> bytes:
    return bytes((byte * 7 + place) & 0xFF for place, byte in enumerate(content))


def flip_one_bit(content: bytes) -> bytes:
    place = len(content) // 3
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :] if content else content


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "cut": cut,
    "cut to an entry": cut_to_an_entry,
    "emptied": lambda content: b"",
    "zeroed": lambda content: bytes(len(content)),
    "garbled": garble,
    "longer": lambda content: content + b"\x00" * 33,
    "flipped": flip_one_bit,
    "removed": None,
}
TARGETS = ["*.index", "*.snapshot", "checkpoint.0", "checkpoint.1", "checkpoint.*", "clean-stop", "*"]


def damage(path: Path, target: str, kind: str) -> None:
    ruin = DAMAGES[kind]
    kept = (".log", ".json", "lock")
    for file in path.rglob(target):
        if file.is_file() and not file.name.endswith(kept):
            if ruin is None:
                file.unlink()
            else:
                file.write_bytes(ruin(file.read_bytes()))


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("target", TARGETS)
def test_damage_to_files_other_than_the_log_changes_no_read(
    site: tuple[Path, Observation], tmp_path: Path, target: str, kind: str
) -> None:
    path, expected = site
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    damage(damaged, target, kind)
    check_twice(damaged, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_one_index_or_snapshot_alone_changes_no_read(
    site: tuple[Path, Observation], tmp_path: Path, kind: str
) -> None:
    path, expected = site
    files = [file for file in (path / "logs").rglob("*") if file.suffix in (".index", ".snapshot")]
    for number, file in enumerate(files):
        damaged = tmp_path / str(number)
        shutil.copytree(path, damaged)
        damage(damaged, file.name, kind)
        check_twice(damaged, expected)


def test_a_repaired_index_is_written_by_the_next_checkpoint(
    site: tuple[Path, Observation], tmp_path: Path
) -> None:
    path, expected = site
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    damage(damaged, "*.index", "garbled")
    manager, log, _ = reopen(damaged)
    assert observe(log) == expected
    assert any(segment.index.repaired is not None for segment in log.segments)
    checkpoint(log)
    assert all(segment.index.repaired is None for segment in log.segments)
    assert observe(log) == expected
    manager.close(BrokerEpoch(1))
    _, log, _ = reopen(damaged)
    assert observe(log) == expected
    assert all(segment.index.repaired is None for segment in log.segments)


def test_loss_of_both_checkpoints_is_reported(crashed: tuple[Path, Observation], tmp_path: Path) -> None:
    path, expected = crashed
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    damage(damaged, "checkpoint.*", "garbled")
    manager, log, _ = reopen(damaged)
    assert len(manager.problems) == 2
    assert observe(log) == expected


def test_only_batches_above_the_recovery_point_are_checked(
    crashed: tuple[Path, Observation], tmp_path: Path
) -> None:
    path, _ = crashed
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    manager, log, _ = reopen(copy)
    (report,) = manager.reports
    assert 0 < report.checked_bytes < log.size_bytes / 3


def test_after_a_clean_stop_no_segment_is_opened(site: tuple[Path, Observation], tmp_path: Path) -> None:
    path, _ = site
    if not (path / "clean-stop").exists():
        pytest.skip("of clean stops")
    copy = tmp_path / "copy"
    shutil.copytree(path, copy, copy_function=os.link)  # a file with another inode would be opened
    manager, log, _ = reopen(copy)
    assert manager.reports == []
    assert all(segment.log_file.file is None for segment in log.segments)
    assert all(segment.index.file.file is None for segment in log.segments)


# --- damage to synced records


def corrupt_batch(path: Path, number: int, position: int, value: bytes) -> int:
    """Overwrite the header of the batch with this number in the first segment; return its base offset."""
    file = min((path / "logs").glob("*/*.log"))
    content = bytearray(file.read_bytes())
    start = 0
    for _ in range(number):
        start += int.from_bytes(content[start + 8 : start + 12], "big") + 12
    base_offset = int.from_bytes(content[start : start + 8], "big")
    content[start + position : start + position + len(value)] = value
    file.write_bytes(content)
    return base_offset


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (8, b"\xff\xff\xff\xff"),  # a negative length
        (8, b"\x7f\xff\xff\xff"),  # a length beyond the file
        (8, b"\x00\x00\x00\x00"),  # a length that would make no progress
        (16, b"\x00"),  # another magic
        (0, b"\x7f" * 8),  # an offset far ahead
        (0, b"\x00" * 7 + b"\x00"),  # an offset far behind
        (23, b"\xff\xff\xff\xff"),  # a negative number of offsets
        (0, bytes(61)),  # a whole header of zeros
    ],
)
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_damaged_synced_batches_are_reported_and_others_stay_readable(
    site: tuple[Path, Observation], tmp_path: Path, position: int, value: bytes, index: str
) -> None:
    path, expected = site
    records = expected[0]
    assert isinstance(records, list)
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    offset = corrupt_batch(damaged, 3, position, value)
    if index == "lost":
        damage(damaged, "*.index", "removed")
    _, log, _ = reopen(damaged)
    assert log.log_end_offset == 120
    assert read_all(log, offset + 2) == records[offset + 2 :]
    for bad in (offset, offset + 1):
        with pytest.raises(CorruptLog):
            log.read(Offset(bad), 10_000, below=Offset(120), at_least_one=True, wait=True)
    before = log.read(Offset(0), 1, below=Offset(120), at_least_one=True, wait=True)
    assert before.length > 0


def test_missing_synced_bytes_are_reported(site: tuple[Path, Observation], tmp_path: Path) -> None:
    path, _ = site
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    active = active_file(damaged)
    active.write_bytes(b"")
    base_offset, is_synced = int(active.stem), (damaged / "clean-stop").exists()
    for _ in range(2):
        manager, log, disk = reopen(damaged)
        if not is_synced:
            assert log.log_end_offset == base_offset
            break
        assert log.log_end_offset == 120, "offsets are not given out again"
        [damage] = log.damage
        assert (damage.base_offset, damage.end_offset) == (base_offset, 120)
        assert manager.lost_partitions == {(TOPIC_ID, 0)}
        with pytest.raises(CorruptLog):
            log.read(Offset(base_offset), 1, below=Offset(120), at_least_one=True, wait=True)
        disk.close()


# --- the log start


@pytest.mark.parametrize("lost", ["checkpoint.0", "checkpoint.1"])
def test_requested_log_start_survives_the_loss_of_one_copy(tmp_path: Path, lost: str) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    fill(log, 0, 40)
    flush(log)
    log.advance_log_start(Offset(33))
    manager.write_checkpoints(both=True)
    disk.close()
    damage(tmp_path, lost, "garbled")
    _, log, _ = reopen(tmp_path)
    assert log.log_start_offset == 33
    assert read_all(log)[0][0] == 33


def test_a_log_start_beyond_the_surviving_end_keeps_offsets_unique(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    fill(log, 0, 40)
    log.advance_log_start(Offset(70))
    manager.write_checkpoints(both=True)
    disk.close()
    for file in sorted((tmp_path / "logs").glob("*/*.log"))[2:]:
        file.unlink()
    _, log, _ = reopen(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (70, 70)
    assert append(log, b"next").base_offset == 70
