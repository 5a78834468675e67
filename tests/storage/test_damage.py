"""Damaged ranges of a log: reads inside, before and behind them, and how damage ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_helpers import NOW_MS, append, make_context, make_log, read_all

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.storage.damage import DamagedRange, clip_damage, merge_damage, next_damage
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_truncation import truncate_log

COUNT = 20
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


def damaged(base_offset: int, end_offset: int, reason: str = "lost") -> DamagedRange:
    return DamagedRange(Offset(base_offset), Offset(end_offset), reason)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = make_log(make_context(tmp_path), CONFIG)
    for number in range(COUNT):
        append(log, b"%02d" % number)
    return log


def read(log: Log, offset: int, max_bytes: int = 1 << 20, *, at_least_one: bool = True) -> int:
    found = log.read(Offset(offset), max_bytes, below=Offset(COUNT), at_least_one=at_least_one, wait=True)
    return found.length


def test_read_inside_a_damaged_range_is_an_error(log: Log) -> None:
    log.add_damage(damaged(7, 9, "segment is missing"))
    for offset in (7, 8):
        for at_least_one in (True, False):
            with pytest.raises(CorruptLog, match="orders-0: offsets 7 to 8 are damaged: segment is missing"):
                read(log, offset, at_least_one=at_least_one)


def test_read_before_a_damaged_range_ends_at_the_range(log: Log) -> None:
    batch_bytes = read(log, 5, 1)
    log.add_damage(damaged(7, 9))
    assert [read(log, offset) for offset in (5, 6)] == [2 * batch_bytes, batch_bytes]
    assert read(log, 6, batch_bytes - 1, at_least_one=False) == 0


def test_records_behind_a_damaged_range_are_read(log: Log) -> None:
    expected = read_all(log, 9)
    log.add_damage(damaged(7, 9))
    assert read_all(log, 9) == expected


def test_gap_before_a_damaged_range_is_not_answered_with_an_empty_read(log: Log) -> None:
    """A consumer that got an empty response would wait at that offset forever."""
    log.add_damage(damaged(7, 9))
    log.add_damage(damaged(3, 4))
    with pytest.raises(CorruptLog):
        read(log, 3, 1, at_least_one=False)


def test_truncation_below_a_damaged_range_ends_the_damage(log: Log) -> None:
    log.add_damage(damaged(7, 9))
    log.add_damage(damaged(2, 3))
    truncate_log(log, Offset(7), NOW_MS, lambda: None)
    assert log.damage == (damaged(2, 3),)
    append(log, b"again")
    assert read_all(log, 7) == [(7, b"again")]


def test_log_start_above_a_damaged_range_ends_the_damage(log: Log) -> None:
    log.add_damage(damaged(7, 9))
    log.add_damage(damaged(2, 3))
    log.advance_log_start(Offset(8))
    assert log.damage == (damaged(8, 9),)


def test_damage_outside_of_the_log_is_dropped(log: Log) -> None:
    log.advance_log_start(Offset(5))
    log.add_damage(damaged(0, 5))
    log.add_damage(damaged(COUNT, COUNT + 5))
    assert log.damage == ()


def test_overlapping_damaged_ranges_are_merged_in_order() -> None:
    assert merge_damage([damaged(8, 12, "b"), damaged(5, 10, "a"), damaged(9, 11, "c")]) == (
        damaged(5, 10, "a"),
        damaged(10, 12, "b"),
    )


def test_clipping_cuts_damaged_ranges_to_the_bounds() -> None:
    ranges = (damaged(1, 3), damaged(5, 8), damaged(9, 10))
    assert clip_damage(ranges, Offset(2), Offset(6)) == (damaged(2, 3), damaged(5, 6))


def test_next_damage_has_the_offset_or_a_later_one() -> None:
    ranges = (damaged(1, 3), damaged(5, 8))
    assert [next_damage(ranges, Offset(offset)) for offset in (0, 2, 3, 7, 8)] == [
        ranges[0],
        ranges[0],
        ranges[1],
        ranges[1],
        None,
    ]
