"""Deadlines of the ranges of a share-partition: a heap of the ends of locks and the times of next deliveries.

An entry may be stale, because its range was settled or split or got another deadline. Therefore the caller checks the
ranges of a due entry. Stale entries are removed when they outnumber the ranges.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from penstock.queues.free_ranges import STALE_ENTRIES
from penstock.queues.ranges import Range, Ranges
from penstock.queues.states import ACQUIRED, WAITING


class RangeDeadlines:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []

    @property
    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def push(self, ranges: Ranges, found: Range) -> None:
        if len(self._heap) > 2 * len(ranges) + STALE_ENTRIES:
            self._heap = [
                (each.deadline_ms, each.first, each.last)
                for each in ranges.all
                if each.state in (ACQUIRED, WAITING)
            ]
            heapify(self._heap)
        heappush(self._heap, (found.deadline_ms, found.first, found.last))

    def pop(self, now_ms: int) -> tuple[int, int] | None:
        """Remove a due deadline and return the first and last offset of its range; None if no deadline is due."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, first, last = heappop(self._heap)
        return first, last
