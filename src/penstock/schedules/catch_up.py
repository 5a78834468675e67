"""Scheduled times that have passed: for which of them a message is sent, and which count as missed. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from penstock.schedules.recurrence import Recurrence

MAX_CATCH_UP: Final = 1_000
"""Maximum number of passed times that catch-up `all` sends messages for; earlier ones count as missed."""
MAX_TOLERANCE_MS: Final = 60_000
"""Upper bound in milliseconds of the allowed delay of a message with catch-up `none`; the other bound is a quarter of
the time to the next firing.
"""


class CatchUp(StrEnum):
    """Treatment of scheduled times that passed while the schedule could not fire."""

    NONE = "none"
    """No message is sent for these times."""
    ONE = "one"
    """One message is sent, for the last of these times."""
    ALL = "all"
    """A message is sent for each of these times."""


class Due(NamedTuple):
    """Decision about the scheduled times that have passed."""

    fires_ms: int | None
    """Scheduled time to send a message for now; None if no message is sent."""
    next_ms: int | None
    """Next scheduled time after those that this decision covers; None if there is none."""
    missed: int


def passed_times(recurrence: Recurrence, catch_up: CatchUp, first_ms: int, now_ms: int) -> Due:
    """Decide about the times of a recurrence from `first_ms`, which has passed, to `now_ms`."""
    if catch_up is CatchUp.ALL:
        fires_ms, missed = _within_catch_up(recurrence, first_ms, now_ms)
        return Due(fires_ms, recurrence.after(fires_ms), missed)
    last_ms = max(first_ms, recurrence.at_or_before(now_ms) or first_ms)
    next_ms = recurrence.after(last_ms)
    missed = _count(recurrence, first_ms, last_ms)
    if catch_up is CatchUp.NONE and now_ms - last_ms > _tolerance_ms(last_ms, next_ms):
        return Due(None, next_ms, missed + 1)
    return Due(last_ms, next_ms, missed)


def _within_catch_up(recurrence: Recurrence, first_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the first of the last `MAX_CATCH_UP` passed times, and the number of earlier passed times (counted up to
    `MAX_CATCH_UP`).
    """
    if now_ms - first_ms < MAX_CATCH_UP * 1_000:  # the shortest interval is one second
        return first_ms, 0
    time_ms = now_ms + 1
    for _ in range(MAX_CATCH_UP):
        earlier_ms = recurrence.at_or_before(time_ms - 1)
        if earlier_ms is None or earlier_ms <= first_ms:
            return first_ms, 0
        time_ms = earlier_ms
    return time_ms, _count(recurrence, first_ms, time_ms)


def _count(recurrence: Recurrence, first_ms: int, end_ms: int) -> int:
    """Number of times from `first_ms` (inclusive) to `end_ms` (exclusive), at most `MAX_CATCH_UP`."""
    count, time_ms = 0, first_ms
    while count < MAX_CATCH_UP and time_ms < end_ms:
        count += 1
        following = recurrence.after(time_ms)
        if following is None:
            break
        time_ms = following
    return count


def _tolerance_ms(time_ms: int, next_ms: int | None) -> int:
    gap_ms = MAX_TOLERANCE_MS if next_ms is None else (next_ms - time_ms) // 4
    return min(MAX_TOLERANCE_MS, gap_ms)
