"""Time, as a seam: nothing else in Penstock reads a clock, so a simulation can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward; for durations."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds that only go forward, for durations; they mean nothing outside of this process."""
    return int(clock.monotonic() * 1000)
