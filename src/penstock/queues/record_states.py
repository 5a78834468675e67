"""The states of the records in flight of a share-partition, with counts and the changes that have to be written.

Base class of `SharePartition`. All changes of ranges are made by these methods, so that counts, members, free ranges,
deadlines and unwritten changes agree with the ranges. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from penstock.queues.deadlines import RangeDeadlines
from penstock.queues.delivery_order import DeliveryOrder, wanted_of
from penstock.queues.free_ranges import FreeRanges
from penstock.queues.ranges import Range, Ranges, describe, without
from penstock.queues.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    WAITING,
    Letters,
    Reason,
    ShareSettings,
    StateBatch,
    StateUpdate,
)
from penstock.records.priority import LEVELS

NO_DELIVERIES: Final = [0] * LEVELS


class RecordStates:
    order: DeliveryOrder | None = None
    """Order of delivery; None if records are delivered in the order of offsets."""
    delivered: list[int] = NO_DELIVERIES
    """Number of deliveries by level, if the group has priorities."""

    def __init__(
        self,
        start_offset: int,
        settings: ShareSettings,
        batches: Iterable[StateBatch] = (),
        letters: Letters | None = None,
    ) -> None:
        """`batches` (ranges) and `letters` (in progress) are the stored state. Offsets between ranges are available."""
        self.start_offset = start_offset
        """Offset below which all records are settled. It never decreases."""
        self.end_offset = start_offset
        """Offset after the highest record that was ever acquired."""
        self.acquired = 0
        """Number of acquired records, which is the number of locks."""
        self.available = 0
        """Number of records in flight that may be delivered now."""
        self.waiting = 0
        """Number of records in flight whose next delivery is delayed."""
        self.archiving = 0
        """Number of records whose dead letters are not written yet."""
        self.letters = letters
        self.settled = 0
        """Number of settled records at or above the start offset."""
        self.lock_timeouts = self.redelivered = self.archived_by_limit = 0
        """Numbers of records: with expired locks, acquired again, and archived because of the delivery limit."""
        self.has_small_group = False
        """True if the last acquisition took records near their delivery limit, to which no others may be added."""
        self._ranges = Ranges()
        self._held: dict[str, set[Range]] = {}
        """Acquired ranges of each member."""
        self._free = FreeRanges()
        self._deadlines = RangeDeadlines()
        self._dirty: list[tuple[int, int]] = []
        """Offset ranges that have changed since the last update."""
        self._told_start = start_offset
        self._told_letters = letters
        self._unsent: deque[tuple[int, int]] = deque()
        """Ranges of offsets that were given up and need dead letters; parts of them may be settled by now."""
        self.follow_settings(settings)
        self._load(batches)

    def follow_settings(self, settings: ShareSettings) -> None:
        """Change the settings. If the order of delivery changes, a new order begins at the start offset."""
        self.settings = settings
        wanted = wanted_of(settings)
        if not any(wanted):
            self.order = None
        elif self.order is None or self.order.wanted != wanted:
            self.order = DeliveryOrder(self, wanted)
            if self.delivered is NO_DELIVERIES:
                self.delivered = [0] * LEVELS

    def _load(self, batches: Iterable[StateBatch]) -> None:
        for first, last, state, delivery_count, ready_ms, reason, _ in sorted(batches):
            first = max(first, self.end_offset)
            if last < first:
                continue
            if first > self.end_offset:
                self._extend(Range(self.end_offset, first - 1, AVAILABLE, 0))
            stored = WAITING if ready_ms > 0 else AVAILABLE
            if state in (ACKNOWLEDGED, ARCHIVING, ARCHIVED):
                stored = state
            loaded = Range(first, last, stored, delivery_count, "", ready_ms, reason)
            if stored == WAITING:
                self._deadlines.push(self._ranges, loaded)
            elif stored == ARCHIVING:
                # Records in the batch in progress must not be in the next batch again.
                in_progress = () if self.letters is None else self.letters.ranges
                self._unsent.extend(without(first, last, in_progress))
            self._extend(loaded)
        self._told_start = self.start_offset

    # --- the log

    def on_log_start(self, log_start_offset: int) -> None:
        """Move the start offset to the log start offset, because the records below were deleted."""
        if log_start_offset <= self.start_offset:
            return
        if log_start_offset < self.end_offset:
            end = self._split(log_start_offset)
        else:
            end = len(self._ranges)
        for gone in self._ranges.all[:end]:
            self._discount(gone)
        self._ranges.replace(0, end, None)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._drop_settled_front()
        if self.order is not None:
            self.order.on_log_start(log_start_offset)

    # --- what to write

    @property
    def has_changes(self) -> bool:
        return (
            bool(self._dirty)
            or self._told_start != self.start_offset
            or self._told_letters is not self.letters
        )

    def take_update(self) -> StateUpdate:
        """Return the changes since the last call. The caller has to write them, or to call `restore_changes`."""
        batches: list[StateBatch] = []
        end = self.start_offset
        for first, last in sorted(self._dirty):
            first = max(first, end)
            if first <= last:
                describe(self._ranges, first, last, batches)
                end = last + 1
        self._dirty.clear()
        self._told_start = self.start_offset
        letters = None if self._told_letters is self.letters else self.letters
        self._told_letters = self.letters
        return StateUpdate(self.start_offset, self.settled, batches, letters)

    def restore_changes(self, update: StateUpdate) -> None:
        """Mark the changes of a failed write as unwritten; the next update contains the states at that time."""
        self._dirty += [(batch.first_offset, batch.last_offset) for batch in update.batches]
        self._told_start = -1
        if update.letters is not None:
            self._told_letters = None

    # --- order of delivery

    def find_available(self, first: int, last: int) -> tuple[int, int] | None:
        """First available records from `first` to `last` with one delivery count; None without any.

        Records that were never acquired are available.
        """
        first = max(first, self.start_offset)
        while first <= last:
            if first >= self.end_offset:
                return first, last
            found = self._ranges.all[self._ranges.place(first)]
            if found.state == AVAILABLE:
                return first, min(found.last, last)
            first = found.last + 1
        return None

    @property
    def released(self) -> int:
        """Number of records that were delivered before and may be delivered again now."""
        if self.order is None:
            return self.available
        # Records that the order of delivery has skipped are available too, but were not delivered before.
        return sum(len(each) for each in self._ranges.all if each.state == AVAILABLE and each.delivery_count)

    def is_unsettled(self, offset: int) -> bool:
        """True if the record at an offset is not settled; False below the start offset."""
        if offset >= self.end_offset:
            return True
        return offset >= self.start_offset and not self._ranges.all[self._ranges.place(offset)].is_settled

    # --- ranges and counts

    def _split(self, offset: int) -> int:
        place, right = self._ranges.split(offset)
        if right is not None:
            if right.state == ACQUIRED:
                self._held[right.member].add(right)
            elif right.state == AVAILABLE:
                self._free.push(self._ranges, right)
        return place

    def _settle(self, first: int, last: int, state: int) -> None:
        place, end = self._split(first), self._split(last + 1)
        count = 0
        for each in self._ranges.all[place:end]:
            self._discount(each)
            count = max(count, each.delivery_count)
        self._dirty.append((first, last))
        if self.order is not None:
            self.order.on_settled(first, last)
        self.settled += last - first + 1
        self._ranges.replace(place, end, Range(first, last, state, count))
        self._ranges.absorb(place)
        self._drop_settled_front()

    def _archive(self, first: int, last: int, reason: Reason) -> None:
        """Archive records: at once if the group has no dead letters, else after their dead letters are written."""
        if not self.settings.has_dead_letters:
            self._settle(first, last, ARCHIVED)
            return
        place, end = self._split(first), self._split(last + 1)
        for each in self._ranges.all[place:end]:
            self._discount(each)
            each.state, each.member, each.deadline_ms, each.reason = ARCHIVING, "", 0, reason
        self._dirty.append((first, last))
        self.archiving += last - first + 1
        self._unsent.append((first, last))

    def _drop_settled_front(self) -> None:
        ranges = self._ranges
        if ranges.all and ranges.all[0].is_settled:
            front = ranges.all[0]
            self.settled -= len(front)
            self.start_offset = front.last + 1
            ranges.replace(0, 1, None)

    def _extend(self, added: Range) -> None:
        """Append a range at the end offset."""
        self.end_offset = added.last + 1
        if added.is_settled:
            self.settled += len(added)
        elif added.state == WAITING:
            self.waiting += len(added)
        elif added.state == ARCHIVING:
            self.archiving += len(added)
        else:
            self.available += len(added)
        self._ranges.append(added)
        place = self._ranges.absorb(len(self._ranges) - 1)
        merged = self._ranges.all[place]
        if merged.state == AVAILABLE:
            self._free.push(self._ranges, merged)
        self._drop_settled_front()

    def _discount(self, old: Range) -> None:
        """Subtract a range from the counts before its state changes."""
        if old.state == ACQUIRED:
            self._unhold(old)
        elif old.state == AVAILABLE:
            self.available -= len(old)
        elif old.state == WAITING:
            self.waiting -= len(old)
        elif old.state == ARCHIVING:
            self.archiving -= len(old)
        else:
            self.settled -= len(old)

    def _unhold(self, held: Range) -> None:
        self.acquired -= len(held)
        mine = self._held[held.member]
        mine.discard(held)
        if not mine:
            del self._held[held.member]
