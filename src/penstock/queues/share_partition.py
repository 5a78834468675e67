"""A share-partition: the state of one partition in one share group. Pure; called by the partition's leader.

A decision changes the state at once. `take_update` returns the changes since the last call, which are written to
`__share_group_state`; the response to an acknowledgement is sent when the write that contains it is committed. A
decision is never undone: after a failed write the changes are written again, or the state is loaded again as it was
last committed. Acquisitions do not change the stored state, so they are forgotten when the leader changes.

All operations work on ranges; their cost is proportional to the number of ranges that they acquire, settle or free.
Times are monotonic milliseconds, including the times of next deliveries in updates; the caller converts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import BrokerError, ErrorCode
from penstock.queues import acknowledgement_checks
from penstock.queues.acquiring import Acquisition, Span
from penstock.queues.letter_states import LetterStates
from penstock.queues.ranges import Range, unsettled
from penstock.queues.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    WAITING,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    DeadReason,
    Reason,
)

REJECTED = Reason(DeadReason.REJECTED)


class SharePartition(LetterStates):
    # --- acquiring

    @property
    def has_room(self) -> bool:
        """True if another record may be acquired."""
        return self.acquired < self.settings.max_locks and self.archiving < self.settings.max_archiving

    @property
    def progress(self) -> tuple[int, int, int]:
        """Numbers of which at least one changes if an acquisition takes records or settles hidden offsets."""
        return self.start_offset, self.end_offset, self.available

    def next_span(self, below: int) -> tuple[int, int] | None:
        """First and last offset of the records to acquire next, all below `below`; None if there are none."""
        if not self.has_room:
            return None
        if self.order is not None:
            allows_new = len(self._ranges) < self.settings.max_ranges
            return self.order.next_span(below, self.settings.lower_share, allows_new=allows_new)
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
        lock_ms: int | None = None,
    ) -> list[Acquired]:
        """Acquire records of consecutive spans, which begin at the first offset of `next_span`.

        `spans` is iterated only as far as necessary. Offsets of hidden spans are settled, because their records do not
        exist or the group does not read them. `has_others` is True if the fetch has records already. `lock_ms` replaces
        the group's lock time.
        """
        acquisition = Acquisition(self.settings, max_records, batch_size, mode, self.acquired, has_others)
        for span in spans:
            acquisition.begin(span)
            self._acquire_in_flight(span, acquisition)
            if span.last >= self.end_offset and not acquisition.is_complete:
                self._acquire_new(span, acquisition)
            if acquisition.is_full():
                break
        deadline_ms = now_ms + (self.settings.lock_ms if lock_ms is None else lock_ms)
        for first, last, delivery_count in acquisition.taken:
            self._lock(member, first, last, delivery_count, deadline_ms)
        self.has_small_group = acquisition.is_small_group
        if self.order is not None:
            count = sum(each.last_offset - each.first_offset + 1 for each in acquisition.taken)
            self.order.on_taken(count, self.settings.lower_share)
            if self.order.wanted.levels:
                self.delivered[self.order.chosen_level] += count
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
                    self._archive(offset, last, Reason(DeadReason.ATTEMPTS))
                else:
                    acquisition.take(offset, last, found.delivery_count, len(found))
            offset = last + 1

    def _acquire_new(self, span: Span, acquisition: Acquisition) -> None:
        first = max(span.first, self.end_offset)
        if self.order is not None and first > self.end_offset:
            # Records of lower levels, or blocked by their keys, are skipped and stay available.
            self._extend(Range(self.end_offset, first - 1, AVAILABLE, 0))
        assert first == self.end_offset, f"span {span} leaves out offsets from {self.end_offset} on"
        if span.is_hidden:
            self._extend(Range(first, span.last, ARCHIVED, 0))
            self._dirty.append((first, span.last))
            if self.order is not None:
                self.order.on_settled(first, span.last)
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
        self._deadlines.push(self._ranges, locked)

    def take_back(self, member: str, acquired: Sequence[Acquired]) -> None:
        """Undo an acquisition whose records are not delivered: they become available, and no delivery is counted."""
        for first, last, _ in acquired:
            for held in self._acquired_within(first, last):
                assert held.member == member, "only the member that has acquired records gives them back"
                self._return(held)

    # --- acknowledging

    def acknowledge(
        self,
        member: str,
        acknowledgements: Sequence[Acknowledgement],
        now_ms: int,
        newest_type: AcknowledgeType = AcknowledgeType.RENEW,
        delay_ms: int | None = None,
        *,
        is_strict: bool = False,
        reason: Reason = REJECTED,
    ) -> None:
        """Settle, release or renew records of a member. If one acknowledgement is refused, nothing is changed.

        `delay_ms` replaces the back-off of released records, and the lock time of renewed records. Offsets below the
        start offset are ignored; with `is_strict` they are refused. `reason` is the reason of rejected records.
        BrokerError INVALID_REQUEST if the request is malformed or offsets were never acquired, INVALID_RECORD_STATE if
        the member does not hold one of the records.
        """
        acknowledgement_checks.check(acknowledgements, newest_type)
        if len(acknowledgements) > 1:
            acknowledgements = acknowledgement_checks.joined(acknowledgements, self.end_offset)
        self.expire(now_ms)
        for acknowledgement in acknowledgements:
            if is_strict and not self.start_offset <= acknowledgement.first_offset < self.end_offset:
                raise BrokerError(
                    ErrorCode.invalid_record_state, f"offset {acknowledgement.first_offset} is not held"
                )
            self._check_held(member, acknowledgement)
        if not self.settings.may_renew and acknowledgement_checks.has_renewals(acknowledgements):
            raise BrokerError(
                ErrorCode.invalid_record_state,
                "locks cannot be renewed: share.renew.acknowledge.enable is false",
            )
        for acknowledgement in acknowledgements:
            for first, last, kind in acknowledgement_checks.runs(acknowledgement, self.start_offset):
                self._carry_out(first, last, kind, now_ms, delay_ms, reason)

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

    def _carry_out(
        self,
        first: int,
        last: int,
        kind: int,
        now_ms: int,
        delay_ms: int | None,
        reason: Reason = REJECTED,
    ) -> None:
        if kind == AcknowledgeType.ACCEPT:
            self._settle(first, last, ACKNOWLEDGED)
        elif kind == AcknowledgeType.GAP:
            self._settle(first, last, ARCHIVED)
        elif kind == AcknowledgeType.REJECT:
            self._archive(first, last, reason)
        elif kind == AcknowledgeType.EXPIRE:
            for held in self._acquired_within(first, last):
                self._uncount(held)
            self._archive(first, last, reason)
        else:
            for held in self._acquired_within(first, last):
                if kind == AcknowledgeType.RELEASE:
                    self._release(held, now_ms, delay_ms)
                elif kind == AcknowledgeType.RETURN:
                    self._return(held)
                else:
                    held.deadline_ms = now_ms + (self.settings.lock_ms if delay_ms is None else delay_ms)
                    self._deadlines.push(self._ranges, held)

    def _acquired_within(self, first: int, last: int) -> list[Range]:
        place, end = self._split(first), self._split(last + 1)
        return [each for each in self._ranges.all[place:end] if each.state == ACQUIRED]

    # --- records without a consumer

    def give_up(
        self, spans: Iterable[Span], first: int, last: int, max_records: int, reason: Reason
    ) -> tuple[int, int]:
        """Archive records from `first` to `last` that no member holds, without a delivery.

        `spans` begin at `first`. Offsets of hidden spans are settled and counted. Return the number of offsets that
        were archived or settled, and the offset after the last one that was processed.
        """
        count, offset = 0, first
        for span in spans:
            offset = max(span.first, self.start_offset)
            while offset <= min(span.last, last):
                if count >= max_records or self._is_full(offset):
                    return count, offset
                end = min(span.last, last, offset + max_records - count - 1)
                if offset >= self.end_offset:
                    self._reach(offset, end)
                found = self._ranges.all[self._ranges.place(offset)]
                end = min(end, found.last)
                if found.state in (AVAILABLE, WAITING):
                    count += end - offset + 1
                    if span.is_hidden:
                        self._settle(offset, end, ARCHIVED)
                    else:
                        self._archive(offset, end, reason)
                offset = max(
                    end + 1, self.start_offset
                )  # adjacent settled records may have been dropped with this one
        return count, offset

    def is_held_within(self, first: int, last: int) -> bool:
        """True if a member holds a record from `first` to `last`."""
        offset = max(first, self.start_offset)
        while offset <= last and offset < self.end_offset:
            found = self._ranges.all[self._ranges.place(offset)]
            if found.state == ACQUIRED:
                return True
            offset = found.last + 1
        return False

    def _is_full(self, offset: int) -> bool:
        """True if a record cannot be given up now: too many records wait for dead letters, or too many ranges exist."""
        is_new = offset >= self.end_offset
        return self.archiving >= self.settings.max_archiving or (
            is_new and len(self._ranges) >= self.settings.max_ranges
        )

    def _reach(self, first: int, last: int) -> None:
        """Extend the records in flight by records that were never acquired, up to `last`. All of them are available."""
        if first > self.end_offset:
            self._extend(Range(self.end_offset, first - 1, AVAILABLE, 0))
        self._extend(Range(first, last, AVAILABLE, 0))

    # --- locks and sessions

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` may have work; None if it will have none."""
        return self._deadlines.next_ms

    def expire(self, now_ms: int) -> int:
        """Release records whose lock has expired, and make due waiting records available; return their number."""
        count = 0
        while (due := self._deadlines.pop(now_ms)) is not None:
            count += self._expire_within(max(due[0], self.start_offset), due[1], now_ms)
        return count

    def _expire_within(self, first: int, last: int, now_ms: int) -> int:
        count = 0
        while first <= last and first < self.end_offset:
            found = self._ranges.all[self._ranges.place(first)]
            after = found.last + 1
            if found.state == ACQUIRED and found.deadline_ms <= now_ms:
                count += len(found)
                self.lock_timeouts += len(found)
                self._release(found, now_ms)
            elif found.state == WAITING and found.deadline_ms <= now_ms:
                count += len(found)
                self.waiting -= len(found)
                self._make_available(found)
            first = max(after, self.start_offset)
        return count

    def release_member(self, member: str, now_ms: int, *, is_lost: bool = False) -> int:
        """Release all records that a member holds, as at the end of its session; return the number of records.

        Records become available at once; with `is_lost`, if the connection was lost, after the back-off.
        """
        count = 0
        for held in sorted(self._held.get(member, ()), key=_first):
            count += len(held)
            self._release(held, now_ms, None if is_lost else 0)
        return count

    # --- counts

    def held_by(self, member: str) -> int:
        """Number of records that a member holds."""
        return sum(len(held) for held in self._held.get(member, ()))

    def oldest_deadline_ms(self) -> int | None:
        """The earliest deadline of the present locks; None without locks."""
        deadlines = (held.deadline_ms for each in self._held.values() for held in each)
        return min(deadlines, default=None)

    def _release(self, held: Range, now_ms: int, delay_ms: int | None = None) -> None:
        """Make records available after a delay, by default the group's back-off; archive them at the delivery limit."""
        if held.delivery_count >= self.settings.delivery_limit:
            self.archived_by_limit += len(held)
            self._archive(held.first, held.last, Reason(DeadReason.ATTEMPTS))
            return
        self._unhold(held)
        self._dirty.append((held.first, held.last))
        held.member = ""
        if delay_ms is None:
            delay_ms = self.settings.backoff.delay_ms(held.delivery_count, held.first)
        if delay_ms <= 0:
            self._make_available(held)
            return
        held.state, held.deadline_ms = WAITING, now_ms + delay_ms
        self.waiting += len(held)
        self._deadlines.push(self._ranges, held)
        self._ranges.absorb(self._ranges.place(held.first))

    def _uncount(self, held: Range) -> None:
        """Undo the count of the last delivery of records."""
        if held.delivery_count > 1:
            self.redelivered -= len(held)
        held.delivery_count -= 1

    def _return(self, held: Range) -> None:
        """Make records available again without counting the delivery."""
        self._uncount(held)
        self._unhold(held)
        held.member = ""
        self._make_available(held)

    def _make_available(self, found: Range) -> None:
        found.state, found.deadline_ms = AVAILABLE, 0
        self.available += len(found)
        if self.order is not None:
            self.order.on_available(found.first, found.last)
        self._free.push(self._ranges, self._ranges.all[self._ranges.absorb(self._ranges.place(found.first))])

    def unsettled(self, below: int, max_records: int) -> list[tuple[int, int, int, int]]:
        """The first records that are not settled: first and last offset, delivery count and state. Changes nothing."""
        return unsettled(self._ranges, self.end_offset, below, max_records)


def _first(each: Range) -> int:
    return each.first
