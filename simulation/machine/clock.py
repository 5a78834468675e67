"""`Clock` in virtual time: durations follow the simulation loop, the wall clock may jump."""

from __future__ import annotations

from collections.abc import Callable

_START_MS = 1_700_000_000_000


class SimulatedClock:
    def __init__(self, now: Callable[[], float], wall_offset_ms: int = 0) -> None:
        """`now` is the `time` method of the loop."""
        self._now = now
        self._offset_ms = _START_MS + wall_offset_ms
        self._latest_ms = 0

    def now_ms(self) -> int:
        return self._offset_ms + int(self._now() * 1000)

    @property
    def latest_ms(self) -> int:
        """Latest time that the wall clock has shown, also before it was set back."""
        return max(self._latest_ms, self.now_ms())

    @property
    def has_jumped(self) -> bool:
        return self._latest_ms > 0

    def monotonic(self) -> float:
        return self._now()

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock forward or back; `monotonic` does not change."""
        self._latest_ms = self.latest_ms
        self._offset_ms += milliseconds
