"""Alarms at times of the wall clock, on one heap and one timer of the event loop.

The wall clock may be changed, so it is read at least every `MAX_SLEEP_S` seconds. No alarm is called before its time on
the wall clock. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from penstock.clock import Clock

MAX_SLEEP_S: Final = 1.0
_RUNG_PER_TURN: Final = 100

Ring = Callable[[], None]


class AlarmClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Ring]] = []
        self._times: dict[Ring, int] = {}
        """Time of each alarm; heap entries with another time are void."""
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, ring: Ring, time_ms: int | None) -> None:
        """Call `ring` once at the time; replaces an earlier alarm of the same `ring`. None only removes the earlier
        alarm.
        """
        if time_ms is None:
            self._times.pop(ring, None)
            return
        if self._times.get(ring) == time_ms:
            return
        self._times[ring] = time_ms
        heappush(self._heap, (time_ms, next(self._order), ring))
        if self._heap[0][2] is ring or self._timer is None:
            self._arm()

    def close(self) -> None:
        self._times.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            delay_s = (self._heap[0][0] - self._clock.now_ms()) / 1000
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(max(delay_s, 0.0), MAX_SLEEP_S), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        for _ in range(_RUNG_PER_TURN):
            if not self._heap or self._heap[0][0] > now_ms:
                break
            time_ms, _, ring = heappop(self._heap)
            if self._times.get(ring) == time_ms:
                del self._times[ring]
                ring()
        self._arm()
