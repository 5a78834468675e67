"""The two copies of the checkpoint file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.model import Offset
from penstock.storage.checkpoints import COPIES, Checkpoints, LogCheckpoint, RecoveryMark
from penstock.storage.disk import RealDisk


def entries(start: int) -> list[LogCheckpoint]:
    mark = RecoveryMark(Offset(30), 20, 512, 17, 16, 3)
    return [LogCheckpoint("orders", b"i" * 16, 0, Offset(start), Offset(25), Offset(5), mark)]


def load(path: Path) -> tuple[list[LogCheckpoint] | None, Checkpoints]:
    checkpoints = Checkpoints(RealDisk(str(path)))
    return checkpoints.load(), checkpoints


def test_a_new_directory_has_no_checkpoint(tmp_path: Path) -> None:
    found, checkpoints = load(tmp_path)
    assert found is None
    assert checkpoints.problems == []
    assert not checkpoints.intact


def test_checkpoint_without_committed_epochs_is_read(tmp_path: Path) -> None:
    class OldCheckpoint(msgspec.Struct, array_like=True):
        topic: str
        topic_id: bytes
        partition: int
        log_start_offset: int
        high_watermark: int
        cleaned_offset: int
        mark: RecoveryMark

    (entry,) = entries(7)
    old = OldCheckpoint("orders", b"i" * 16, 0, 7, 25, 5, entry.mark)
    Checkpoints(RealDisk(str(tmp_path))).write(cast(Any, [old]))
    assert load(tmp_path)[0] == [entry]


def test_newest_checkpoint_copy_is_used(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RealDisk(str(tmp_path)))
    for start in range(5):
        checkpoints.write(entries(start))
        assert load(tmp_path)[0] == entries(start)
        reopened = Checkpoints(RealDisk(str(tmp_path)))
        reopened.load()
        checkpoints = reopened


@pytest.mark.parametrize("damaged", COPIES)
@pytest.mark.parametrize("damage", ["cut", "empty", "zero", "flip", "gone"])
def test_checkpoint_in_both_copies_survives_damage_of_one(tmp_path: Path, damaged: str, damage: str) -> None:
    checkpoints = Checkpoints(RealDisk(str(tmp_path)))
    checkpoints.write(entries(1))
    checkpoints.write(entries(2), both=True)
    ruin(tmp_path / damaged, damage)
    found, reloaded = load(tmp_path)
    assert found == entries(2)
    assert not reloaded.intact
    reloaded.write(entries(3))
    assert load(tmp_path)[0] == entries(3)


@pytest.mark.parametrize("damage", ["cut", "empty", "zero", "flip"])
def test_damage_of_both_copies_is_reported(tmp_path: Path, damage: str) -> None:
    Checkpoints(RealDisk(str(tmp_path))).write(entries(1), both=True)
    for copy in COPIES:
        ruin(tmp_path / copy, damage)
    found, checkpoints = load(tmp_path)
    assert found is None
    assert len(checkpoints.problems) == 2


def test_every_flipped_bit_of_a_checkpoint_is_detected(tmp_path: Path) -> None:
    Checkpoints(RealDisk(str(tmp_path))).write(entries(1))
    (copy,) = tmp_path.glob("checkpoint.*")
    content = copy.read_bytes()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        copy.write_bytes(damaged)
        assert load(tmp_path)[0] is None


def ruin(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
        return
    if damage == "flip":
        content[-1] ^= 1
    path.write_bytes(
        {"cut": bytes(content[:-3]), "empty": b"", "zero": bytes(len(content)), "flip": bytes(content)}[
            damage
        ]
    )
