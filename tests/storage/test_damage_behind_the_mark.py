"""Damage in committed records above the recovery mark: after a crash it must not count as a torn end."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_helpers import append, flush, make_batch, open_manager, read_all, the_log

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE
from penstock.records.iteration import read_batches
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

COUNT = 20
CONFIG = LogConfig(index_interval_bytes=150)


def fill(path: Path, *, committed: int, values: list[bytes]) -> Path:
    """The file of a log that was flushed and crashed; its high watermark is in the checkpoint."""
    disk = RealDisk(str(path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for value in values:
        append(log, value)
    flush(log)
    log.high_watermark = Offset(committed)
    manager.write_checkpoints()
    disk.close()
    (file,) = (path / "logs").glob("*/*.log")
    return file


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def reopen(path: Path) -> Log:
    disk = RealDisk(str(path))
    log = the_log(open_manager(disk), CONFIG)
    disk.close()
    return log


def values() -> list[bytes]:
    return [b"value %02d" % number for number in range(COUNT)]


BATCH_BYTES = len(make_batch([b"value 00"]))


@pytest.mark.parametrize("byte", [0, 8, 11, 16, 20, 23, 57, HEADER_SIZE + 3])
def test_damage_below_the_high_watermark_makes_only_its_batch_unreadable(tmp_path: Path, byte: int) -> None:
    file = fill(tmp_path, committed=COUNT, values=values())
    flip(file, 5 * BATCH_BYTES + byte)
    for _ in range(2):
        log = reopen(tmp_path)
        assert log.log_end_offset == COUNT
        assert read_all(log, 6) == list(enumerate(values()))[6:]
        try:
            content = log.read(Offset(5), 1, below=Offset(COUNT), at_least_one=True, wait=True).read()
        except CorruptLog:
            continue
        (_, batch), *_ = read_batches(memoryview(content))
        assert bytes(batch) != bytes(make_batch([b"value 05"]))


def test_recovery_truncates_the_log_at_damage_above_the_high_watermark(tmp_path: Path) -> None:
    file = fill(tmp_path, committed=5, values=values())
    flip(file, 5 * BATCH_BYTES + HEADER_SIZE + 3)
    log = reopen(tmp_path)
    assert log.log_end_offset == 5
    assert read_all(log) == list(enumerate(values()))[:5]


def test_checkpointed_high_watermark_is_never_above_the_flushed_offset(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, CONFIG)
    append(log, b"a")
    flush(log)
    append(log, b"b")
    log.high_watermark = Offset(2)
    assert log.checkpoint().high_watermark == 1


def test_value_that_looks_like_a_batch_is_no_batch(tmp_path: Path) -> None:
    """Its bytes have a valid CRC and a fitting offset, but lie inside another batch, whose records are damaged."""
    forged = bytearray(make_batch([b"forged"]))
    forged[7] = 6
    smuggled = [*values()[:5], b"xx" + bytes(forged), *values()[6:]]
    file = fill(tmp_path, committed=COUNT, values=smuggled)
    flip(file, 5 * BATCH_BYTES + HEADER_SIZE + 8)
    log = reopen(tmp_path)
    assert log.log_end_offset == COUNT
    assert read_all(log, 6) == list(enumerate(smuggled))[6:]
