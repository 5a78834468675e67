"""Records of one priority level in a share-partition: runs of offsets that are visited in order, and freed records.

The position moves over the runs. Records before the position were acquired, or could not be acquired when they were
visited. Records before the position that become available again are freed: they are visited before the position moves
on. A run takes 16 bytes. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Final

Find = Callable[[int, int], tuple[int, int] | None]
"""Function that finds the first records from one offset to another that may be acquired: first and last offset."""

_DROPPED_AT_ONCE: Final = 512


class PriorityLevel:
    __slots__ = ("_firsts", "_freed", "_lasts", "_place", "_position")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._place = 0
        """Index of the run that contains the position, or of the last run before it."""
        self._position = 0
        self._freed: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._firsts) + len(self._freed)

    def add(self, first: int, last: int, start_offset: int) -> None:
        """Add records after all others of the level. Runs below `start_offset` are dropped."""
        if self._lasts and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
            return
        self._firsts.append(first)
        self._lasts.append(last)
        count = min(self._place, bisect_left(self._lasts, start_offset))
        if count >= _DROPPED_AT_ONCE:
            del self._firsts[:count], self._lasts[:count]
            self._place -= count

    def free(self, first: int, last: int) -> None:
        """Free the records of this level from `first` to `last` that are before the position, to visit them again."""
        last = min(last, self._position - 1)
        place = bisect_left(self._lasts, first)
        while place < len(self._firsts) and self._firsts[place] <= last:
            heappush(self._freed, (max(first, self._firsts[place]), min(last, self._lasts[place])))
            place += 1

    def first(self, find: Find) -> tuple[int, int] | None:
        """First and last offset of the first records of the level that may be acquired; None if there are none."""
        freed = self._first_freed(find)
        if freed is not None:
            return freed
        while self._place < len(self._firsts):
            offset, last = max(self._position, self._firsts[self._place]), self._lasts[self._place]
            found = find(offset, last) if offset <= last else None
            if found is not None:
                self._position = found[0]
                return found
            self._position = max(self._position, last + 1)
            if self._place + 1 == len(self._firsts):
                break
            self._place += 1
        return None

    def _first_freed(self, find: Find) -> tuple[int, int] | None:
        while self._freed:
            first, last = self._freed[0]
            found = find(first, last)
            if found is None:
                heappop(self._freed)
                continue
            if found[0] != first:
                heapreplace(self._freed, (found[0], last))
            return found
        return None
