"""Order of delivery in a share-partition whose group has priorities or order by key.

The order knows the level and the key of each record from the start offset up to its end offset. It is derived from the
log; records behind the end offset are not delivered until they are indexed. `SharePartition` reports every change of a
record to it, and asks it which records are next. Whether a record is available is the share-partition's knowledge
alone, so the order may visit a record twice, but does not leave one out. Pure.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.queues.key_order import BlockedKeys
from penstock.queues.priority_level import PriorityLevel
from penstock.queues.record_index import IndexedFields, IndexedRecords
from penstock.queues.states import ShareSettings
from penstock.records.priority import LEVELS

MAX_RUNS: Final = 1_000_000
"""Limit of runs of records of one level; at the limit the order does not grow."""
MAX_KEYED: Final = 100_000
"""Limit of unsettled records with a key; at the limit the order does not grow."""
_MAX_SPAN: Final = 256
"""Number of records that are looked at for blocked ones at a time."""
_MAX_CREDIT: Final = 1_000
"""Number of records of the highest level whose reserved share is remembered while no lower record is available."""


class RecordAvailability(Protocol):
    """The share-partition, as its order sees it."""

    start_offset: int
    end_offset: int

    def find_available(self, first: int, last: int) -> tuple[int, int] | None:
        """First available records of one delivery count between two offsets. Records never acquired are available."""

    def is_unsettled(self, offset: int) -> bool: ...


def wanted_of(settings: ShareSettings) -> IndexedFields:
    return IndexedFields(settings.has_priorities, settings.is_ordered)


class DeliveryOrder:
    def __init__(self, states: RecordAvailability, wanted: IndexedFields) -> None:
        self.wanted = wanted
        self.end_offset = states.start_offset
        """Offset behind the last record that is indexed."""
        self.keys = BlockedKeys() if wanted.keys else None
        self.chosen_level = 0
        """Level of the records that `next_span` has returned."""
        self._is_reserved = False
        self._credit = 0.0
        """Number of records that lower levels may get before the highest one."""
        self._states = states
        self._levels = [PriorityLevel() for _ in range(LEVELS if wanted.levels else 1)]
        self._settling: list[int] = []
        """Settled records with a key whose settlement may not be durable."""

    # --- indexing

    @property
    def is_full(self) -> bool:
        if self.keys is not None and len(self.keys) >= MAX_KEYED:
            return True
        return sum(map(len, self._levels)) >= MAX_RUNS

    def add(self, records: IndexedRecords) -> None:
        """Add the records behind the end offset."""
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
        """Begin at the start offset if it has moved beyond the end offset."""
        self.end_offset = max(self.end_offset, self._states.start_offset)

    # --- choosing

    def next_span(self, below: int, lower_share: float, *, allows_new: bool) -> tuple[int, int] | None:
        """First and last offset of the records that are next. `allows_new` includes records never acquired."""
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
        """First records that are available and not blocked by their key."""
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
        """Count records that were acquired from the span that `next_span` has returned."""
        if self._is_reserved:
            self._credit -= count
        else:
            earned = lower_share / (1 - lower_share)
            self._credit = min(self._credit + count * earned, _MAX_CREDIT * earned)

    # --- changes of records

    def on_available(self, first: int, last: int) -> None:
        """Records can be delivered again."""
        for level in self._levels:
            level.free(first, last)

    def on_settled(self, first: int, last: int) -> None:
        if self.keys is not None:
            self._settling += self.keys.within(first, last)

    @property
    def has_settling(self) -> bool:
        return bool(self._settling)

    def take_settling(self) -> list[int]:
        """Records that were settled since the last call: `free_keys` has to be called once that is durable."""
        taken, self._settling = self._settling, []
        return taken

    def free_keys(self, offsets: list[int]) -> None:
        """Let the next records of the keys of settled records be delivered."""
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
