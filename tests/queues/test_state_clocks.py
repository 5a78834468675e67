"""Times in the stored state of a share-partition: read by a leader with another clock than the one that wrote them."""

from __future__ import annotations

import pytest

from penstock.queues.states import AVAILABLE, StateBatch, from_wall_clock, to_wall_clock

HOUR_MS = 3_600_000
WALL_MS = 1_700_000_000_000


def stored(wait_ms: int, wall_ms: int = WALL_MS) -> list[StateBatch]:
    """State of a record that was released with this back-off, by a leader whose clocks show 5,000 and `wall_ms`."""
    return to_wall_clock([StateBatch(0, 0, AVAILABLE, 1, 5_000 + wait_ms)], 5_000, wall_ms)


@pytest.mark.parametrize(
    ("later_ms", "left_ms"), [(0, 700), (300, 400), (700, 0), (900, -200), (-HOUR_MS, 700), (-50, 700)]
)
def test_record_waits_no_longer_than_was_left_when_it_was_stored(later_ms: int, left_ms: int) -> None:
    (batch,) = from_wall_clock(stored(700), 20_000, WALL_MS + later_ms)
    assert batch.ready_ms == 20_000 + left_ms


def test_state_of_an_older_version_has_no_limit() -> None:
    (batch,) = from_wall_clock([stored(700)[0]._replace(wait_ms=0)], 20_000, WALL_MS - 1_000)
    assert batch.ready_ms == 21_700


def test_record_without_a_wait_stays_available() -> None:
    batches = [StateBatch(0, 4, AVAILABLE, 2)]
    assert from_wall_clock(to_wall_clock(batches, 5_000, WALL_MS), 20_000, WALL_MS - HOUR_MS) == batches


def test_time_never_becomes_none() -> None:
    (batch,) = from_wall_clock(stored(10), 20, WALL_MS + HOUR_MS)
    assert batch.ready_ms == 1
