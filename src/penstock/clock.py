"""Clock: the only place in Penstock that reads the time, so that a simulation can replace it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch. May jump."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds, for durations."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


def monotonic_ms(clock: Clock) -> int:
    """Monotonic milliseconds, for durations. Meaningless outside this process."""
    return int(clock.monotonic() * 1000)
