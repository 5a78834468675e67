"""The available ranges of a share-partition by first offset: a heap whose entries may be stale.

An entry is stale when its range was acquired, settled, merged or cut since. Stale entries are dropped when they come to
the top, and all of them when they outnumber the ranges.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from penstock.queues.ranges import Range, Ranges
from penstock.queues.states import AVAILABLE

STALE_ENTRIES: Final = 64
"""Number of stale entries that a heap may have besides those of the present ranges."""


class FreeRanges:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Range]] = []

    def push(self, ranges: Ranges, found: Range) -> None:
        if len(self._heap) > 2 * len(ranges) + STALE_ENTRIES:
            self._heap = [(each.first, id(each), each) for each in ranges.all if each.state == AVAILABLE]
            heapify(self._heap)
        heappush(self._heap, (found.first, id(found), found))

    def lowest(self, ranges: Ranges) -> Range | None:
        """The available range with the lowest offsets."""
        while self._heap:
            first, _, found = self._heap[0]
            if found.state == AVAILABLE and found.first == first:
                return found
            heappop(self._heap)
            if found.state == AVAILABLE:
                self.push(ranges, found)
        return None
