"""Deadlines of a coordinator. One heap and one timer of the event loop serve all of them.

A deadline that is postponed keeps its entry in the heap: its owner checks the new time when the old time is due. Loop
thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count

from penstock.clock import Clock, monotonic_ms

_FIRED_PER_TURN = 100


class Timers:
    def __init__(self, clock: Clock, fire: Callable[[Hashable], None]) -> None:
        """`fire` is called with each due key, and may schedule the key again."""
        self._clock = clock
        self._fire = fire
        self._heap: list[tuple[int, int, Hashable]] = []
        self._due_ms: dict[Hashable, int] = {}
        self._order = count()
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None

    def now_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return monotonic_ms(self._clock)

    def schedule(self, key: Hashable, due_ms: int | None) -> None:
        """Schedule the key for `due_ms`, unless it is scheduled for that or an earlier time. None changes nothing."""
        if due_ms is None or self._due_ms.get(key, due_ms + 1) <= due_ms:
            return
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, next(self._order), key))
        self._arm()

    def close(self) -> None:
        self._heap.clear()
        self._due_ms.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if not self._heap or (self._armed_ms is not None and self._armed_ms <= self._heap[0][0]):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_ms = self._heap[0][0]
        # One millisecond more, because `now_ms` rounds down: a timer never fires early.
        delay_s = max(0, self._armed_ms + 1 - self._clock.monotonic() * 1000) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._handle = self._armed_ms = None
        now_ms = self.now_ms()
        try:
            for _ in range(_FIRED_PER_TURN):
                if not self._heap or self._heap[0][0] > now_ms:
                    break
                due_ms, _, key = heappop(self._heap)
                if self._due_ms.get(key) == due_ms:
                    del self._due_ms[key]
                    self._fire(key)
        finally:
            self._arm()
