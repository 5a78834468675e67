"""Latencies of messages, by the second in which they were due."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import inf

from bench.measure import percentile

NANOSECONDS = 1_000_000_000


class Latencies:
    """Latencies from stamps and arrivals of the machine's monotonic clock, in nanoseconds."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._by_second: dict[int, array[float]] = {}

    def arrived(self, stamps_ns: Iterable[int], now_ns: int) -> None:
        """The first stamp is the start; messages of one second are not distinguished."""
        for stamp_ns in stamps_ns:
            if self._began_ns is None:
                self._began_ns = stamp_ns
            second = (stamp_ns - self._began_ns) // NANOSECONDS
            self._by_second.setdefault(second, array("f")).append((now_ns - stamp_ns) / 1e6)

    def percentile_ms(self, share: float, from_s: int, to_s: int) -> float:
        """Latencies of messages due in the seconds `from_s` to `to_s`, without the last; infinite where none
        came.
        """
        chosen: array[float] = array("f")
        for second in range(from_s, to_s):
            chosen.extend(self._by_second.get(second, array("f")))
        return percentile(chosen, share) if chosen else inf

    def settled_s(self, from_s: int, to_s: int, limit_ms: float) -> float:
        """Seconds after `from_s` until the p99 of every later second is below the limit; `to_s - from_s` if
        never.
        """
        for second in reversed(range(from_s, to_s)):
            if self.percentile_ms(0.99, second, second + 1) >= limit_ms:
                return second + 1 - from_s
        return 0.0
