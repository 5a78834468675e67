"""How many bytes may go to copies that catch up: a bucket that fills at a rate and is overdrawn by what must go whole.

Over any longer time the rate holds; a batch larger than what is in the bucket goes all the same, and is paid for
afterwards. Loop thread only.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.config.types import LONG_MAX

_BURST_SECONDS = 0.25
_PORTION_SECONDS = 0.05
"""Waiting is for this much at least: not for every single byte."""


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
        """Bytes that may go now; 0 while it has to be waited."""
        self._fill()
        return int(self._balance) if self._balance >= self._portion else 0

    def take(self, count: int) -> None:
        """So many bytes have gone."""
        self._fill()
        self._balance -= count

    def wait_seconds(self) -> float:
        """Until there is an allowance again."""
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
