"""Files that crashes leave in a partition's directory, above all during the swap of a compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_helpers import append, checkpoint, open_manager, read_all, the_log

from penstock.storage import recovery
from penstock.storage.closed_segments import CLOSED_SEGMENTS_FILE
from penstock.storage.disk import RealDisk
from penstock.storage.index import IndexEntry, encode_entries
from penstock.storage.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of several two-record segments, checkpointed and left."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for number in range(12):
        append(log, b"value %02d" % number * 5)
    checkpoint(log)
    manager.write_checkpoints(both=True)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8, 10]
    disk.close()
    return tmp_path / log.directory


class Killed(BaseException):
    """The process ends here."""


def die(*_: object) -> None:
    raise Killed


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def write_cleaned(directory: Path, suffix: str) -> None:
    """The segments of 2 to 5, compacted to the last record of each, as the two files of one segment."""
    first, second = (directory / name(2, ".log")).read_bytes(), (directory / name(4, ".log")).read_bytes()
    content = first[len(first) // 2 :] + second[len(second) // 2 :]
    (directory / name(2, ".log" + suffix)).write_bytes(content)
    end = IndexEntry(4, len(content), 1_700_000_000_000)
    (directory / name(2, ".index" + suffix)).write_bytes(encode_entries(2, [end]))


def offsets_after_restart(directory: Path) -> list[int]:
    for _ in range(2):
        disk = RealDisk(str(directory.parents[1]))
        log = the_log(open_manager(disk), CONFIG)
        found = read_all(log)
        disk.close()
        strange = [
            file.name
            for file in directory.iterdir()
            if file.suffix not in (".log", ".index", ".snapshot") and file.name != CLOSED_SEGMENTS_FILE
        ]
        assert strange == []
    assert all(value == b"value %02d" % offset * 5 for offset, value in found)
    return [offset for offset, _ in found]


OLD = list(range(12))
NEW = [0, 1, 3, 5, 6, 7, 8, 9, 10, 11]


def test_a_swap_that_did_not_begin_is_undone(directory: Path) -> None:
    write_cleaned(directory, ".cleaned")
    assert offsets_after_restart(directory) == OLD


def test_a_swap_with_only_the_index_renamed_is_undone(directory: Path) -> None:
    write_cleaned(directory, ".cleaned")
    (directory / name(2, ".index.cleaned")).rename(directory / name(2, ".index.swap"))
    assert offsets_after_restart(directory) == OLD


@pytest.mark.parametrize("removed", [[], [2], [4], [2, 4]])
def test_a_swap_that_began_is_finished(directory: Path, removed: list[int]) -> None:
    write_cleaned(directory, ".swap")
    for offset in removed:
        (directory / name(offset, ".log")).unlink()
        (directory / name(offset, ".index")).unlink()
    assert offsets_after_restart(directory) == NEW


def test_a_swap_with_only_the_log_left_to_rename_is_finished(directory: Path) -> None:
    write_cleaned(directory, ".swap")
    for offset in (2, 4):
        (directory / name(offset, ".log")).unlink()
    (directory / name(4, ".index")).unlink()
    (directory / name(2, ".index.swap")).rename(directory / name(2, ".index"))
    assert offsets_after_restart(directory) == NEW


@pytest.mark.parametrize("removed", [[], [2], [2, 4]])
def test_start_that_is_killed_after_it_finished_a_swap_leaves_no_damage(
    directory: Path, removed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cleaned(directory, ".swap")
    for offset in removed:
        (directory / name(offset, ".log")).unlink()
    disk = RealDisk(str(directory.parents[1]))
    with monkeypatch.context() as killed:
        killed.setattr(recovery, "find_segments", die)
        with pytest.raises(Killed):
            open_manager(disk)
    disk.close()
    assert not (directory / name(2, ".log.swap")).exists()
    assert offsets_after_restart(directory) == NEW


def test_a_finished_swap_is_read_also_when_checkpoints_are_lost(directory: Path) -> None:
    write_cleaned(directory, ".swap")
    for copy in directory.parents[1].glob("checkpoint.*"):
        copy.write_bytes(b"damaged")
    assert offsets_after_restart(directory) == NEW


def test_a_swap_without_its_index_keeps_every_record_it_can(directory: Path) -> None:
    write_cleaned(directory, ".swap")
    (directory / name(2, ".index.swap")).unlink()
    assert set(NEW) <= set(offsets_after_restart(directory))


def test_leftovers_of_deletions_and_replacements_are_removed(directory: Path) -> None:
    for stray in ("00000000000000000000.log.deleted", "x.tmp", name(99, ".index")):
        (directory / stray).write_bytes(b"old")
    assert offsets_after_restart(directory) == OLD
    assert not (directory / name(99, ".index")).exists()


def test_directory_without_stray_files_is_not_changed(directory: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    offsets_after_restart(directory)
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before
    shutil.rmtree(tmp_path)
