"""A partition whose directory vanished, or was replaced by a copy, while the broker was down."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_helpers import TOPIC_ID, append, checkpoint, flush, open_manager, read_all, the_log

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.storage.disk import RealDisk


@pytest.mark.parametrize("known_by", ["recovery mark", "high watermark"])
def test_vanished_directory_is_damage_and_its_offsets_are_not_reused(tmp_path: Path, known_by: str) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager)
    for _ in range(3):
        append(log, b"value")
    flush(log)
    if known_by == "recovery mark":
        checkpoint(log)
    else:
        log.high_watermark = Offset(3)
    manager.write_checkpoints()
    disk.close()
    shutil.rmtree(tmp_path / log.directory)
    manager = open_manager(RealDisk(str(tmp_path)))
    assert manager.problems == []
    replaced = the_log(manager)
    assert (replaced.log_start_offset, replaced.log_end_offset) == (0, 3)
    assert "vanished" in manager.problems[0]
    assert append(replaced, b"new").base_offset == 3
    manager.context.disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    assert [(each.base_offset, each.end_offset) for each in log.damage] == [(0, 3)]
    with pytest.raises(CorruptLog):
        log.read(Offset(1), 1, below=Offset(4), at_least_one=True, wait=True)
    assert read_all(log, 3) == [(3, b"new")]


def test_new_log_starts_at_zero_without_a_problem(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    assert the_log(manager).log_end_offset == 0
    assert manager.problems == []


def test_copy_without_closed_segments_that_is_older_than_the_checkpoint_is_found(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "boot")
    log = the_log(manager)
    append(log, b"00")
    checkpoint(log)
    manager.write_checkpoints()
    directory, copy = tmp_path / log.directory, tmp_path / "copy"
    shutil.copytree(directory, copy)
    append(log, b"01")
    checkpoint(log)
    manager.write_checkpoints()
    disk.close()
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    manager = open_manager(RealDisk(str(tmp_path)), "boot")
    log = the_log(manager)
    assert [(each.base_offset, each.end_offset) for each in log.damage] == [(1, 2)]
    assert manager.lost_partitions == {(TOPIC_ID, 0)}
