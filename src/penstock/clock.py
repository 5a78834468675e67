"""Clock: the only place in Penstock that reads the time, so that a simulation can replace it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the Unix epoch. It may jump in both directions."""
        ...

    def monotonic(self) -> float:
        """Monotonic time in seconds, for measuring durations."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


def monotonic_ms(clock: Clock) -> int:
    """Monotonic time in milliseconds, for measuring durations in this process only."""
    return int(clock.monotonic() * 1000)
