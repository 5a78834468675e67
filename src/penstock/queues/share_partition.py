"""A share-partition: what one share group has done with one partition. Pure; called by the partition's leader.

A decision changes the state at once. `take_update` returns the changes since the call before, to be written to
`__share_group_state`; an acknowledgement is answered when the write that contains it is committed. A decision is
never taken back: after a failed write the changes are written again, or the state is loaded again from the last
committed one. Acquiring changes no stored state, so a lost leader forgets acquisitions.

Every operation works on ranges; its cost is proportional to the ranges that it acquires, settles or frees.
Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from penstock.errors import BrokerError, ErrorCode
from penstock.queues import acknowledging
from penstock.queues.acquiring import Acquisition, Span
from penstock.queues.free_ranges import STALE_ENTRIES, FreeRanges
from penstock.queues.ranges import Range, Ranges, describe
from penstock.queues.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    ShareSettings,
    StateBatch,
    StateUpdate,
)


class SharePartition:
    def __init__(
        self, start_offset: int, settings: ShareSettings, batches: Iterable[StateBatch] = ()
    ) -> None:
        """`batches` is the stored state. Offsets between batches were in flight and not settled: available."""
        self.settings = settings
        self.start_offset = start_offset
        """Offset below which every record is settled or of no interest. Never decreases."""
        self.end_offset = start_offset
        """Offset behind the highest record that was ever acquired."""
        self.acquired = 0
        """Number of acquired records: the locks."""
        self.available = 0
        """Number of records in flight that wait for redelivery."""
        self.settled = 0
        """Number of settled records at or above the start offset."""
        self.lock_timeouts = self.redelivered = self.archived_by_limit = 0
        """Number of records whose lock has expired, which were acquired again, and which the limit has archived."""
        self.has_small_group = False
        """Whether the last acquisition took records near their delivery limit, which stay alone."""
        self._ranges = Ranges()
        self._held: dict[str, set[Range]] = {}
        """Acquired ranges of each member."""
        self._free = FreeRanges()
        self._locks: list[tuple[int, int, int]] = []
        """Heap of lock deadlines, each with the first and last offset that were locked together."""
        self._dirty: list[tuple[int, int]] = []
        """Offset ranges that have changed since the last update."""
        self._told_start = start_offset
        self._load(batches)

    def _load(self, batches: Iterable[StateBatch]) -> None:
        for first, last, state, delivery_count in sorted(batches):
            first = max(first, self.end_offset)
            if last < first:
                continue
            if first > self.end_offset:
                self._extend(Range(self.end_offset, first - 1, AVAILABLE, 0))
            stored = state if state in (ACKNOWLEDGED, ARCHIVED) else AVAILABLE
            self._extend(Range(first, last, stored, delivery_count))
        self._told_start = self.start_offset

    # --- acquiring

    @property
    def has_room(self) -> bool:
        """Whether another record may be locked."""
        return self.acquired < self.settings.max_locks

    def next_span(self, below: int) -> tuple[int, int] | None:
        """First and last offset of the records that are acquired next, all below `below`; None if there are none."""
        if not self.has_room:
            return None
        free = self._free.lowest(self._ranges)
        if free is not None:
            return (free.first, min(free.last, below - 1)) if free.first < below else None
        if self.end_offset < below and len(self._ranges) < self.settings.max_ranges:
            return self.end_offset, below - 1
        return None

    def acquire(
        self,
        member: str,
        spans: Iterable[Span],
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        now_ms: int,
        has_others: bool = False,
    ) -> list[Acquired]:
        """Acquire records of consecutive spans, which begin at the first offset of `next_span`.

        `spans` is read only as far as necessary. Offsets of hidden spans are settled: their records do not exist,
        or the group does not read them. `has_others` says that the fetch has records already.
        """
        acquisition = Acquisition(self.settings, max_records, batch_size, mode, self.acquired, has_others)
        for span in spans:
            acquisition.begin(span)
            self._acquire_in_flight(span, acquisition)
            if span.last >= self.end_offset and not acquisition.is_complete:
                self._acquire_new(span, acquisition)
            if acquisition.is_full():
                break
        deadline_ms = now_ms + self.settings.lock_ms
        for first, last, delivery_count in acquisition.taken:
            self._lock(member, first, last, delivery_count, deadline_ms)
        self.has_small_group = acquisition.is_small_group
        return acquisition.taken

    def _acquire_in_flight(self, span: Span, acquisition: Acquisition) -> None:
        offset = max(span.first, self.start_offset)
        while offset <= span.last and offset < self.end_offset and not acquisition.is_complete:
            found = self._ranges.all[self._ranges.place(offset)]
            last = min(found.last, span.last)
            if found.state == AVAILABLE:
                if span.is_hidden:
                    self._settle(offset, last, ARCHIVED)
                elif found.delivery_count >= self.settings.delivery_limit:
                    self.archived_by_limit += last - offset + 1
                    self._settle(offset, last, ARCHIVED)
                else:
                    acquisition.take(offset, last, found.delivery_count, len(found))
            offset = last + 1

    def _acquire_new(self, span: Span, acquisition: Acquisition) -> None:
        first = max(span.first, self.end_offset)
        assert first == self.end_offset, f"span {span} leaves out offsets from {self.end_offset} on"
        if span.is_hidden:
            self._extend(Range(first, span.last, ARCHIVED, 0))
            self._dirty.append((first, span.last))
        else:
            count = acquisition.take(first, span.last, 0, 0)
            if count:
                self._extend(Range(first, first + count - 1, AVAILABLE, 0))

    def _lock(self, member: str, first: int, last: int, delivery_count: int, deadline_ms: int) -> None:
        place = self._split(first)
        end = self._split(last + 1)
        held = self._held.setdefault(member, set())
        count = last - first + 1
        locked = Range(first, last, ACQUIRED, delivery_count, member, deadline_ms)
        self._ranges.replace(place, end, locked)
        held.add(locked)
        self.acquired += count
        self.available -= count
        if delivery_count > 1:
            self.redelivered += count
        self._push_lock(locked)

    # --- acknowledging

    def acknowledge(
        self,
        member: str,
        acknowledgements: Sequence[Acknowledgement],
        now_ms: int,
        newest_type: AcknowledgeType = AcknowledgeType.RENEW,
    ) -> None:
        """Settle, release or renew records of a member: all of the request, or none.

        BrokerError INVALID_REQUEST for a malformed request or offsets that were never acquired,
        INVALID_RECORD_STATE if the member does not hold one of the records. Offsets below the start offset are ignored.
        """
        acknowledging.check(acknowledgements, newest_type)
        self.expire(now_ms)
        for acknowledgement in acknowledgements:
            self._check_held(member, acknowledgement)
        if not self.settings.may_renew and acknowledging.has_renewals(acknowledgements):
            raise BrokerError(
                ErrorCode.invalid_record_state,
                "locks cannot be renewed: share.renew.acknowledge.enable is false",
            )
        for acknowledgement in acknowledgements:
            for first, last, kind in acknowledging.runs(acknowledgement, self.start_offset):
                self._carry_out(first, last, kind, now_ms)

    def _check_held(self, member: str, acknowledgement: Acknowledgement) -> None:
        first, last, _ = acknowledgement
        if last >= self.end_offset:
            raise BrokerError(ErrorCode.invalid_request, f"offset {last} was never acquired")
        if last < self.start_offset:
            return
        ranges = self._ranges.all
        for place in range(self._ranges.place(max(first, self.start_offset)), len(ranges)):
            found = ranges[place]
            if found.first > last:
                break
            if found.state != ACQUIRED or found.member != member:
                raise BrokerError(
                    ErrorCode.invalid_record_state,
                    f"offset {max(first, found.first)} is not held by this member",
                )

    def _carry_out(self, first: int, last: int, kind: int, now_ms: int) -> None:
        if kind == AcknowledgeType.ACCEPT:
            self._settle(first, last, ACKNOWLEDGED)
        elif kind in (AcknowledgeType.REJECT, AcknowledgeType.GAP):
            self._settle(first, last, ARCHIVED)
        else:
            for held in self._acquired_within(first, last):
                if kind == AcknowledgeType.RELEASE:
                    self._release(held)
                else:
                    held.deadline_ms = now_ms + self.settings.lock_ms
                    self._push_lock(held)

    def _acquired_within(self, first: int, last: int) -> list[Range]:
        place, end = self._split(first), self._split(last + 1)
        return [each for each in self._ranges.all[place:end] if each.state == ACQUIRED]

    # --- locks and sessions

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` may have work."""
        return self._locks[0][0] if self._locks else None

    def expire(self, now_ms: int) -> int:
        """Release the records whose lock is over; returns their number."""
        count = 0
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heappop(self._locks)
            count += self._expire_within(max(first, self.start_offset), last, now_ms)
        self.lock_timeouts += count
        return count

    def _expire_within(self, first: int, last: int, now_ms: int) -> int:
        count = 0
        while first <= last and first < self.end_offset:
            found = self._ranges.all[self._ranges.place(first)]
            after = found.last + 1
            if found.state == ACQUIRED and found.deadline_ms <= now_ms:
                count += len(found)
                self._release(found)
            first = max(after, self.start_offset)
        return count

    def release_member(self, member: str) -> int:
        """Release everything that a member holds, as at the end of its session; returns the number of records."""
        count = 0
        for held in sorted(self._held.get(member, ()), key=_first):
            count += len(held)
            self._release(held)
        return count

    def held_by(self, member: str) -> int:
        """Number of records that a member holds."""
        return sum(len(held) for held in self._held.get(member, ()))

    def oldest_deadline_ms(self) -> int | None:
        """The first deadline of the present locks."""
        deadlines = (held.deadline_ms for each in self._held.values() for held in each)
        return min(deadlines, default=None)

    def _release(self, held: Range) -> None:
        if held.delivery_count >= self.settings.delivery_limit:
            self.archived_by_limit += len(held)
            self._settle(held.first, held.last, ARCHIVED)
            return
        self._unhold(held)
        self._dirty.append((held.first, held.last))
        held.state = AVAILABLE
        held.member = ""
        self.available += len(held)
        self._free.push(self._ranges, self._ranges.all[self._ranges.absorb(self._ranges.place(held.first))])

    # --- the log

    def on_log_start(self, log_start_offset: int) -> None:
        """Move the start offset to the log start: the records below do not exist any more."""
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

    # --- what to write

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty) or self._told_start != self.start_offset

    def take_update(self) -> StateUpdate:
        """Changes since the last call. The caller writes them until they are committed."""
        batches: list[StateBatch] = []
        end = self.start_offset
        for first, last in sorted(self._dirty):
            first = max(first, end)
            if first <= last:
                describe(self._ranges, first, last, batches)
                end = last + 1
        self._dirty.clear()
        self._told_start = self.start_offset
        return StateUpdate(self.start_offset, self.settled, batches)

    def restore_changes(self, update: StateUpdate) -> None:
        """Return the changes of a write that failed, so that the next update has them as they are by then."""
        self._dirty += [(batch.first_offset, batch.last_offset) for batch in update.batches]
        self._told_start = -1

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
        self.settled += last - first + 1
        self._ranges.replace(place, end, Range(first, last, state, count))
        self._ranges.absorb(place)
        self._drop_settled_front()

    def _drop_settled_front(self) -> None:
        ranges = self._ranges
        if ranges.all and ranges.all[0].is_settled:
            front = ranges.all[0]
            self.settled -= len(front)
            self.start_offset = front.last + 1
            ranges.replace(0, 1, None)

    def _extend(self, added: Range) -> None:
        """Add a range at the end offset."""
        self.end_offset = added.last + 1
        if added.is_settled:
            self.settled += len(added)
        else:
            self.available += len(added)
        self._ranges.append(added)
        place = self._ranges.absorb(len(self._ranges) - 1)
        merged = self._ranges.all[place]
        if merged.state == AVAILABLE:
            self._free.push(self._ranges, merged)
        self._drop_settled_front()

    def _discount(self, old: Range) -> None:
        """Remove a range from the counts, before its state changes."""
        if old.state == ACQUIRED:
            self._unhold(old)
        elif old.state == AVAILABLE:
            self.available -= len(old)
        else:
            self.settled -= len(old)

    def _unhold(self, held: Range) -> None:
        self.acquired -= len(held)
        mine = self._held[held.member]
        mine.discard(held)
        if not mine:
            del self._held[held.member]

    def _push_lock(self, held: Range) -> None:
        if len(self._locks) > 2 * len(self._ranges) + STALE_ENTRIES:
            self._locks = [
                (each.deadline_ms, each.first, each.last)
                for each in self._ranges.all
                if each.state == ACQUIRED
            ]
            heapify(self._locks)
        heappush(self._locks, (held.deadline_ms, held.first, held.last))


def _first(each: Range) -> int:
    return each.first
