"""State of a share-partition as the share coordinator stores it: epochs, start offset and ranges of offsets.

Only `apply` changes the state, for new records and in a replay. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.queues.records import SnapshotValue, UpdateValue
from penstock.queues.states import ARCHIVED, ARCHIVING, StateBatch, is_settled


class StoredRanges:
    """Sorted, disjoint ranges. A new range replaces the parts that it overlaps; adjacent settled ranges are merged."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[StateBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def all(self) -> tuple[StateBatch, ...]:
        return tuple(self._batches)

    def put(self, added: StateBatch) -> None:
        first, last = added.first_offset, added.last_offset
        if first > last:
            return
        place = bisect_right(self._firsts, first) - 1
        if place < 0 or self._batches[place].last_offset < first:
            place += 1
        end = bisect_right(self._firsts, last)
        parts: list[StateBatch] = []
        overlapped = self._batches[place:end]
        if overlapped and overlapped[0].first_offset < first:
            parts.append(overlapped[0]._replace(last_offset=first - 1))
        parts.append(added)
        if overlapped and overlapped[-1].last_offset > last:
            parts.append(overlapped[-1]._replace(first_offset=last + 1))
        if place > 0:
            place -= 1
            parts.insert(0, self._batches[place])
        if end < len(self._batches):
            parts.append(self._batches[end])
            end += 1
        self._replace(place, end, _merged(parts))

    def drop_below(self, offset: int) -> None:
        place = bisect_left(self._firsts, offset)
        kept: list[StateBatch] = []
        if place > 0 and self._batches[place - 1].last_offset >= offset:
            kept = [self._batches[place - 1]._replace(first_offset=offset)]
        self._replace(0, place, kept)

    def _replace(self, place: int, end: int, by: list[StateBatch]) -> None:
        self._batches[place:end] = by
        self._firsts[place:end] = [each.first_offset for each in by]


def _merged(parts: list[StateBatch]) -> list[StateBatch]:
    merged = parts[:1]
    for part in parts[1:]:
        before = merged[-1]
        if before.last_offset + 1 != part.first_offset:
            merged.append(part)
        elif is_settled(before.state) and is_settled(part.state):
            state = before.state if before.state == part.state else ARCHIVED
            count = max(before.delivery_count, part.delivery_count)
            merged[-1] = StateBatch(before.first_offset, part.last_offset, state, count)
        elif before[2:] == part[2:]:
            merged[-1] = before._replace(last_offset=part.last_offset)
        else:
            merged.append(part)
    return merged


class StoredState:
    def __init__(self, snapshot: SnapshotValue, log_offset: int) -> None:
        """`log_offset` is at or below the offset of the snapshot in the log. Records below it are not needed."""
        self.apply_snapshot(snapshot, log_offset)

    def apply_snapshot(self, snapshot: SnapshotValue, log_offset: int) -> None:
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.create_timestamp_ms = snapshot.create_timestamp_ms
        self.log_offset = log_offset
        self.updates = 0
        """Number of updates since the snapshot."""
        self.letters = snapshot.letters
        self.ranges = StoredRanges()
        self._may_archive = False
        """False if it is certain that no range waits for dead letters."""
        self._put(snapshot.batches)

    def apply_update(self, update: UpdateValue) -> None:
        self.leader_epoch = max(self.leader_epoch, update.leader_epoch)
        self.updates += 1
        self._put(update.batches)
        if update.letters is not None:
            self.letters = update.letters
        if update.start_offset >= 0:
            self.start_offset = max(self.start_offset, update.start_offset)
            self.delivery_complete_count = update.delivery_complete_count
            self.ranges.drop_below(self.start_offset)

    @property
    def has_unwritten_letters(self) -> bool:
        """True if records wait for their dead letters."""
        if self.letters is not None and self.letters.ranges:
            return True
        if self._may_archive:
            self._may_archive = any(each.state == ARCHIVING for each in self.ranges.all())
        return self._may_archive

    def _put(self, batches: Iterable[StateBatch]) -> None:
        for batch in batches:
            self.ranges.put(batch)
            self._may_archive |= batch.state == ARCHIVING

    def snapshot(self, now_ms: int) -> SnapshotValue:
        """Make the next snapshot from the present state."""
        return SnapshotValue(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.create_timestamp_ms,
            now_ms,
            self.ranges.all(),
            self.letters,
        )
