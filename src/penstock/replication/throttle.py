"""Replication throttle: a token bucket in bytes, which a batch larger than its content overdraws.

The rate holds over time: an overdraft is paid back before the next bytes are sent. Loop thread only.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.config.types import LONG_MAX

_BURST_SECONDS = 0.25
_PORTION_SECONDS = 0.05
"""Smallest allowance in bytes that a wait ends with, so that a wait does not end for single bytes."""


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = LONG_MAX
        self._balance = 0.0
        self._filled_at = clock.monotonic()

    def set_rate(self, bytes_per_second: int) -> None:
        self._fill()
        self._rate = bytes_per_second
        self._balance = min(self._balance, bytes_per_second * _BURST_SECONDS)

    @property
    def is_off(self) -> bool:
        return self._rate == LONG_MAX

    def allowance(self) -> int:
        """Bytes that may be sent now; 0 while the sender has to wait."""
        self._fill()
        return int(self._balance) if self._balance >= self._portion else 0

    def take(self, count: int) -> None:
        """Take bytes that were sent."""
        self._fill()
        self._balance -= count

    def wait_seconds(self) -> float:
        """Time in seconds until there is an allowance again."""
        self._fill()
        return max(0.0, (self._portion - self._balance) / self._rate)

    @property
    def _portion(self) -> float:
        return max(1.0, self._rate * _PORTION_SECONDS)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        if not self.is_off:
            most = max(self._portion, self._rate * _BURST_SECONDS)
            self._balance = min(most, self._balance + (now - self._filled_at) * self._rate)
        self._filled_at = now
