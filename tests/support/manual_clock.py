"""A clock that only the test moves."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self) -> None:
        self.wall = START_MS
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.seconds += ms / 1000
