"""One acquisition: the number of available records that a fetch acquires, and their division into batches. Pure.

Records that are near their delivery limit are delivered in smaller groups, and alone at the last attempt, so that one
bad record does not make its neighbours reach the limit too (KIP-932).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.queues.states import Acquired, AcquireMode, ShareSettings


class Span(NamedTuple):
    """Consecutive offsets of the log: a record batch, or a range that the group does not read."""

    first: int
    last: int
    is_hidden: bool = False
    """True if no record of these offsets may be acquired: they are control, aborted or compacted records."""


class Acquisition:
    def __init__(
        self,
        settings: ShareSettings,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        locked: int,
        has_others: bool = False,
    ) -> None:
        """With `has_others` the fetch has records already, so that none near their delivery limit are acquired."""
        self.taken: list[Acquired] = []
        self.is_complete = False
        """True if no further records may be taken, not even from the present span."""
        self._settings = settings
        self._max_records = max_records
        self._batch_size = max(1, batch_size)
        self._has_others = has_others
        self._is_exact = mode == AcquireMode.RECORD_LIMIT
        self._room = settings.max_locks - locked
        self._count = 0
        self._company_left: int | None = None
        """Number of records that may be added to the present small group; None if the group size is not limited."""
        self._batch_begins = False
        self._next = -1
        """Offset after the last record that was taken, and after hidden spans that follow it."""

    def begin(self, span: Span) -> None:
        self._batch_begins = True
        if span.is_hidden and span.first == self._next:
            self._next = span.last + 1

    def is_full(self) -> bool:
        """True if no further span is needed."""
        return self.is_complete or self._count >= self._max_records

    @property
    def is_small_group(self) -> bool:
        """True if records near their delivery limit were taken, to which no others may be added."""
        return self._company_left is not None and bool(self.taken)

    def take(self, first: int, last: int, delivery_count: int, range_size: int) -> int:
        """Take records from `first` on, which were delivered `delivery_count` times; return the number taken.

        `range_size` is the number of records in their range.
        """
        if self._is_exact and self.taken and not self._follows(first, delivery_count + 1):
            self.is_complete = True
            return 0
        count = min(last - first + 1, self._room)
        if self._is_exact:
            count = min(count, self._max_records - self._count)
        company = self._company(delivery_count, range_size)
        if company is not None and self._has_others:
            self.is_complete = True
            return 0
        if (company is None) != (self._company_left is None) and self.taken:
            self.is_complete = True
            return 0
        if company is not None:
            self._company_left = company if self._company_left is None else self._company_left
            count = min(count, self._company_left)
            self._company_left -= count
        if count > 0:
            self._add(first, first + count - 1, delivery_count + 1)
        if count < last - first + 1 or self._company_left == 0:
            self.is_complete = True
        return max(0, count)

    def _company(self, delivery_count: int, range_size: int) -> int | None:
        """Maximum size of a group of records with this delivery count; None if it is not limited."""
        limit = self._settings.delivery_limit
        careful_from = max(2, -(-limit // 2))
        if limit <= 2 or delivery_count < careful_from:
            return None
        if delivery_count >= limit - 1:
            return 1
        return max(1, range_size >> (delivery_count - careful_from + 1))

    def _follows(self, first: int, delivery_count: int) -> bool:
        """True if no record is between the taken records and `first`, and the delivery count is the same."""
        return self._next == first and self.taken[-1].delivery_count == delivery_count

    def _continues(self, first: int, delivery_count: int) -> bool:
        before = self.taken[-1]
        return before.last_offset + 1 == first and before.delivery_count == delivery_count

    def _add(self, first: int, last: int, delivery_count: int) -> None:
        self._next = last + 1
        self._count += last - first + 1
        self._room -= last - first + 1
        if self.taken and self._continues(first, delivery_count):
            before = self.taken[-1]
            is_large = last - before.first_offset + 1 > self._batch_size
            if self._is_exact or not (self._batch_begins and is_large):
                self.taken[-1] = before._replace(last_offset=last)
                self._batch_begins = False
                return
        self.taken.append(Acquired(first, last, delivery_count))
        self._batch_begins = False
