"""Deadlines by key that are mostly postponed before they pass, such as sessions that every heartbeat extends.

Postponing a deadline only writes to a dict; the heap entry is corrected when its time comes. Each key has one
valid heap entry, at or before its deadline. The number of invalid entries is bounded by that of valid ones
plus a constant.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_DEAD_ENTRIES_AT_LEAST = 64


class Deadlines:
    def __init__(self) -> None:
        self._deadlines_ms: dict[str, int] = {}
        self._entries_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def __contains__(self, key: str) -> bool:
        return key in self._deadlines_ms

    @property
    def next_ms(self) -> int | None:
        """Lower bound of all deadlines; None if there are none. A deadline need not have passed at this time."""
        return self._heap[0][0] if self._heap else None

    def set(self, key: str, deadline_ms: int) -> None:
        self._deadlines_ms[key] = deadline_ms
        entry_ms = self._entries_ms.get(key)
        if entry_ms is None or deadline_ms < entry_ms:
            self._enter(key, deadline_ms)

    def discard(self, key: str) -> None:
        if self._deadlines_ms.pop(key, None) is not None:
            del self._entries_ms[key]
            self._drop_dead_entries()

    def pop(self, now_ms: int) -> str | None:
        """Remove and return a key whose deadline has passed; None if there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            entry_ms, key = heappop(self._heap)
            if self._entries_ms.get(key) != entry_ms:
                continue
            deadline_ms = self._deadlines_ms[key]
            if deadline_ms <= now_ms:
                self.discard(key)
                return key
            self._enter(key, deadline_ms)
        return None

    def _enter(self, key: str, deadline_ms: int) -> None:
        self._entries_ms[key] = deadline_ms
        heappush(self._heap, (deadline_ms, key))
        self._drop_dead_entries()

    def _drop_dead_entries(self) -> None:
        if not self._entries_ms:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self._entries_ms) + _DEAD_ENTRIES_AT_LEAST:
            self._heap = [(entry_ms, key) for key, entry_ms in self._entries_ms.items()]
            heapify(self._heap)
