"""Ordered, contiguous ranges of offsets: the records in flight of a share-partition.

The ranges cover all offsets from the start offset to the end offset without gaps or overlaps. A range is split if a
part of it changes its state. Adjacent ranges are merged if they are settled, or available with the same delivery count,
so that a settled range is one object even if it is long. Ranges that wait for the same time are merged too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.queues.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NO_REASON,
    WAITING,
    Reason,
    StateBatch,
)

GONE = -1
"""State of a range that was merged into another or removed."""


class Range:
    """Consecutive offsets with the same state. `member` and `deadline_ms` are set while the range is acquired.

    In the state WAITING `deadline_ms` is the time at which the range becomes available. `reason` is set in the state
    ARCHIVING.
    """

    __slots__ = ("deadline_ms", "delivery_count", "first", "last", "member", "reason", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: int,
        delivery_count: int,
        member: str = "",
        deadline_ms: int = 0,
        reason: Reason = NO_REASON,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member = member
        self.deadline_ms = deadline_ms
        self.reason = reason

    def __repr__(self) -> str:
        return f"Range({self.first}-{self.last} state={self.state} count={self.delivery_count} {self.member})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_settled(self) -> bool:
        return self.state >= ACKNOWLEDGED and self.state != ARCHIVING


class Ranges:
    """Sorted list of ranges. The counts of states are kept by `RecordStates`."""

    __slots__ = ("_firsts", "all")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.all: list[Range] = []

    def __len__(self) -> int:
        return len(self.all)

    def place(self, offset: int) -> int:
        """Index of the range that contains the offset, which must not be below the first range."""
        return bisect_right(self._firsts, offset) - 1

    def append(self, added: Range) -> None:
        self._firsts.append(added.first)
        self.all.append(added)

    def split(self, offset: int) -> tuple[int, Range | None]:
        """Split a range so that a range begins at `offset`. Return its index, and the new range if there is one."""
        place = bisect_left(self._firsts, offset)
        if place < len(self._firsts) and self._firsts[place] == offset:
            return place, None
        if place == 0:
            return 0, None
        left = self.all[place - 1]
        if left.last < offset:
            return place, None
        right = Range(
            offset, left.last, left.state, left.delivery_count, left.member, left.deadline_ms, left.reason
        )
        left.last = offset - 1
        self._firsts.insert(place, offset)
        self.all.insert(place, right)
        return place, right

    def replace(self, start: int, end: int, by: Range | None) -> None:
        """Replace the ranges with indexes from `start` up to `end`, exclusive, by one range or by nothing."""
        for old in self.all[start:end]:
            old.state = GONE
        if by is None:
            del self._firsts[start:end]
            del self.all[start:end]
        else:
            self._firsts[start:end] = (by.first,)
            self.all[start:end] = (by,)

    def absorb(self, place: int) -> int:
        """Merge the range at this index with adjacent ranges if possible; return the index of the merged range."""
        if place + 1 < len(self.all) and _are_one(self.all[place], self.all[place + 1]):
            self._merge(place)
        if place > 0 and _are_one(self.all[place - 1], self.all[place]):
            self._merge(place - 1)
            place -= 1
        return place

    def _merge(self, place: int) -> None:
        left, right = self.all[place], self.all[place + 1]
        left.last = right.last
        if left.is_settled:
            left.state = left.state if left.state == right.state else ARCHIVED
            left.delivery_count = max(left.delivery_count, right.delivery_count)
        right.state = GONE
        del self._firsts[place + 1]
        del self.all[place + 1]


def _are_one(left: Range, right: Range) -> bool:
    if left.state == ACQUIRED or right.state == ACQUIRED:
        return False
    if left.is_settled:
        return right.is_settled
    if left.state != right.state or left.delivery_count != right.delivery_count:
        return False
    return left.state == AVAILABLE or (left.deadline_ms == right.deadline_ms and left.reason == right.reason)


def describe(ranges: Ranges, first: int, last: int, batches: list[StateBatch]) -> None:
    """Append the ranges from `first` to `last` to `batches`, in the form in which they are stored."""
    for place in range(ranges.place(first), len(ranges)):
        found = ranges.all[place]
        if found.first > last:
            break
        state, count, ready_ms = found.state, found.delivery_count, 0
        if state == ACQUIRED:
            state, count = AVAILABLE, count - 1  # acquisitions are not stored
        elif state == WAITING:
            state, ready_ms = AVAILABLE, found.deadline_ms
        ends = max(first, found.first), min(last, found.last)
        _add_batch(batches, StateBatch(*ends, state, count, ready_ms, found.reason))


def _add_batch(batches: list[StateBatch], added: StateBatch) -> None:
    """Append a batch, or extend the last one. Available records without a finished delivery are not stored."""
    if added.state == AVAILABLE and added.delivery_count == 0:
        return
    if batches:
        before = batches[-1]
        if before[1] + 1 == added[0] and before[2:] == added[2:]:
            batches[-1] = before._replace(last_offset=added.last_offset)
            return
    batches.append(added)


def unsettled(
    ranges: Ranges, end_offset: int, below: int, max_records: int
) -> list[tuple[int, int, int, int]]:
    """The first records below `below` that are not settled: first and last offset, delivery count and state."""
    found: list[tuple[int, int, int, int]] = []
    for each in ranges.all:
        if max_records <= 0 or each.first >= below:
            return found
        if not each.is_settled:
            last = min(each.last, below - 1, each.first + max_records - 1)
            found.append((each.first, last, each.delivery_count, each.state))
            max_records -= last - each.first + 1
    if max_records > 0 and end_offset < below:
        found.append((end_offset, min(below - 1, end_offset + max_records - 1), 0, AVAILABLE))
    return found


def without(first: int, last: int, others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a range of offsets that are not in any of the ranges `others`."""
    parts = []
    for other_first, other_last in sorted(others):
        if other_last < first or other_first > last:
            continue
        if first < other_first:
            parts.append((first, other_first - 1))
        first = other_last + 1
    return [*parts, (first, last)] if first <= last else parts
