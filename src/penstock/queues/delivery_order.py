"""Order of delivery in a share-partition whose group has priorities or order by key.

The order has the level and the key of each record from the start offset up to its end offset. It is derived from the
log; records after the end offset are not delivered until they are indexed. `SharePartition` reports every change of a
record to the order, and asks it for the records to deliver next. Only the share-partition knows if a record is
available. The order may visit a record twice, but never leaves one out. Pure.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.queues.key_order import BlockedKeys
from penstock.queues.priority_level import PriorityLevel
from penstock.queues.record_index import IndexedFields, IndexedRecords
from penstock.queues.states import ShareSettings
from penstock.records.priority import LEVELS

MAX_RUNS: Final = 1_000_000
"""Maximum number of runs of records of one level. At the maximum no further records are indexed."""
MAX_KEYED: Final = 100_000
"""Maximum number of unsettled records with a key. At the maximum no further records are indexed."""
_MAX_SPAN: Final = 256
"""Maximum number of records that are checked at a time if they are blocked by their keys."""
_MAX_CREDIT: Final = 1_000
"""Maximum number of deliveries of the highest level that give credit to lower levels without available records."""


class RecordAvailability(Protocol):
    """The part of `SharePartition` that the order uses."""

    start_offset: int
    end_offset: int

    def find_available(self, first: int, last: int) -> tuple[int, int] | None:
        """First available records from `first` to `last` with one delivery count; None without any.

        Records that were never acquired are available.
        """

    def is_unsettled(self, offset: int) -> bool: ...


def wanted_of(settings: ShareSettings) -> IndexedFields:
    return IndexedFields(settings.has_priorities, settings.is_ordered)


class DeliveryOrder:
    def __init__(self, states: RecordAvailability, wanted: IndexedFields) -> None:
        self.wanted = wanted
        self.end_offset = states.start_offset
        """Offset after the last indexed record."""
        self.keys = BlockedKeys() if wanted.keys else None
        self.chosen_level = 0
        """Level of the records that `next_span` has returned last."""
        self._is_reserved = False
        self._credit = 0.0
        """Number of records of lower levels that may be delivered before records of the highest level."""
        self._states = states
        self._levels = [PriorityLevel() for _ in range(LEVELS if wanted.levels else 1)]
        self._settling: list[int] = []
        """Offsets of settled records with a key whose settlement may not be durable yet."""

    # --- indexing

    @property
    def is_full(self) -> bool:
        if self.keys is not None and len(self.keys) >= MAX_KEYED:
            return True
        return sum(map(len, self._levels)) >= MAX_RUNS

    def add(self, records: IndexedRecords) -> None:
        """Add the records after the end offset."""
        assert records.first_offset == self.end_offset, f"{records.first_offset} is not {self.end_offset}"
        offset, start = self.end_offset, self._states.start_offset
        if self.keys is not None:
            for place, key in records.keys:
                if self._states.is_unsettled(place):
                    self.keys.add(place, key)
        for first, last, level in records.runs:
            if offset < first:
                self._levels[0].add(offset, first - 1, start)
            self._levels[level].add(first, last, start)
            offset = last + 1
        if offset < records.end_offset:
            self._levels[0].add(offset, records.end_offset - 1, start)
        self.end_offset = records.end_offset

    def skip_settled(self) -> None:
        """Move the end offset to the start offset of the share-partition if that is higher."""
        self.end_offset = max(self.end_offset, self._states.start_offset)

    # --- choosing

    def next_span(self, below: int, lower_share: float, *, allows_new: bool) -> tuple[int, int] | None:
        """First and last offset of the records to deliver next, below `below`; None if there are none.

        `lower_share` is the share of deliveries for lower levels. `allows_new` is True to include records that were
        never acquired.
        """
        top: tuple[int, int] | None = None
        other: tuple[int, int] | None = None
        other_level = 0
        for level in range(len(self._levels) - 1, -1, -1):
            found = self._levels[level].first(self._find)
            if found is None or found[0] >= below or (found[0] >= self._states.end_offset and not allows_new):
                continue
            if top is None:
                top, self.chosen_level = found, level
                if lower_share <= 0 or self._credit < 1:
                    break
            elif other is None or found[0] < other[0]:
                other, other_level = found, level
        self._is_reserved = other is not None
        if other is not None:
            self.chosen_level = other_level
            return other[0], min(other[1], below - 1, other[0] + int(self._credit) - 1)
        return None if top is None else (top[0], min(top[1], below - 1))

    def _find(self, first: int, last: int) -> tuple[int, int] | None:
        """First records from `first` to `last` that are available and not blocked by their keys."""
        blocked = self.keys.blocked if self.keys is not None else ()
        while (found := self._states.find_available(first, last)) is not None:
            if not blocked:
                return found
            first, end = found
            while first <= end and first in blocked:
                first += 1
            if first > end:
                continue
            end = min(end, first + _MAX_SPAN - 1)
            stop = first
            while stop < end and stop + 1 not in blocked:
                stop += 1
            return first, stop
        return None

    def on_taken(self, count: int, lower_share: float) -> None:
        """Count the records that were acquired from the span of the last `next_span`."""
        if self._is_reserved:
            self._credit -= count
        else:
            earned = lower_share / (1 - lower_share)
            self._credit = min(self._credit + count * earned, _MAX_CREDIT * earned)

    # --- changes of records

    def on_available(self, first: int, last: int) -> None:
        """Handle records that became available again: they will be visited again."""
        for level in self._levels:
            level.free(first, last)

    def on_settled(self, first: int, last: int) -> None:
        if self.keys is not None:
            self._settling += self.keys.within(first, last)

    @property
    def has_settling(self) -> bool:
        return bool(self._settling)

    def take_settling(self) -> list[int]:
        """Return the records with keys that were settled since the last call.

        The caller has to call `free_keys` with them once the settlement is durable.
        """
        taken, self._settling = self._settling, []
        return taken

    def free_keys(self, offsets: list[int]) -> None:
        """Remove settled records, so that the next records of their keys can be delivered."""
        if self.keys is None:
            return
        for offset in offsets:
            following = self.keys.free(offset)
            if following is not None:
                self.on_available(following, following)

    def on_log_start(self, offset: int) -> None:
        """Forget the records below the log start."""
        if self.keys is not None:
            self.free_keys(self.keys.below(offset))
        self.skip_settled()
