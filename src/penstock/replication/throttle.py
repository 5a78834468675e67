"""Replication throttle: a token bucket in bytes. A batch that is larger than the content makes the content negative.

On average the rate is kept, because nothing is sent while the content is negative. Loop thread only.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.config.types import LONG_MAX

_BURST_SECONDS = 0.25
_PORTION_SECONDS = 0.05
"""A wait ends when the bytes of this many seconds may be sent, so that it does not end for a few bytes."""


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
        """Number of bytes that may be sent now; 0 if the sender has to wait."""
        self._fill()
        return int(self._balance) if self._balance >= self._portion else 0

    def take(self, count: int) -> None:
        """Count `count` bytes that were sent."""
        self._fill()
        self._balance -= count

    def wait_seconds(self) -> float:
        """Time in seconds until `allowance` is above 0."""
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
