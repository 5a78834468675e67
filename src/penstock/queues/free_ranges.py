"""The available ranges of a share-partition: a heap by first offset, whose entries may be stale.

An entry is stale if its range was acquired, settled, merged or split after it was added. Stale entries are removed when
they reach the top of the heap, and all at once when they outnumber the ranges.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from penstock.queues.ranges import Range, Ranges
from penstock.queues.states import AVAILABLE

STALE_ENTRIES: Final = 64
"""The heap is rebuilt when its entries exceed this number plus twice the number of ranges."""


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
        """The available range with the lowest offsets; None without any."""
        while self._heap:
            first, _, found = self._heap[0]
            if found.state == AVAILABLE and found.first == first:
                return found
            heappop(self._heap)
            if found.state == AVAILABLE:
                self.push(ranges, found)
        return None
