"""Planted bugs of share groups: each loses, doubles or shows a record, or leaves a member waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.queues import acknowledgement_checks
from penstock.queues.acquiring import Acquisition, Span
from penstock.queues.log_spans import LogSpans
from penstock.queues.ranges import Range
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import ACKNOWLEDGED, ACQUIRED, AVAILABLE, Acknowledgement, StateBatch
from penstock.queues.stored_state import StoredState


@planted_in_cluster("Q1", "Q5", needs={"shares"})
def acquired_records_count_as_accepted_after_a_crash() -> AbstractContextManager[Any]:
    """A new leader takes records between the stored ranges, which were acquired, for accepted ones."""
    extend = SharePartition._extend

    def settle(self: SharePartition, added: Range) -> None:
        if added.state == AVAILABLE and len(added) > 0 and not self._held and added.delivery_count == 0:
            added.state = ACKNOWLEDGED
        extend(self, added)

    def load(self: SharePartition, *arguments: Any) -> None:
        with patch.object(SharePartition, "_extend", settle):
            real(self, *arguments)

    real = SharePartition._load
    return patch.object(SharePartition, "_load", load)


@planted_in_cluster("Q3", needs={"shares"})
def lock_timers_survive_the_acknowledgement() -> AbstractContextManager[Any]:
    """The timer of an earlier lock ends the lock of the next holder."""

    expire_within = SharePartition._expire_within

    def expire(self: SharePartition, first: int, last: int, now_ms: int) -> int:
        for each in self._ranges.all:
            if each.state == ACQUIRED and each.first <= last and each.last >= first:
                each.deadline_ms = now_ms
        return expire_within(self, first, last, now_ms)

    return patch.object(SharePartition, "_expire_within", expire)


@planted_in_cluster("Q3", needs={"shares"})
def records_are_acknowledged_by_members_without_them() -> AbstractContextManager[Any]:
    """A member renews, releases and settles records of another member."""

    def check(self: SharePartition, member: str, asked: Acknowledgement) -> None:
        place = self._ranges.place(max(asked.first_offset, self.start_offset))
        held = {each.member for each in self._ranges.all[place:] if each.first <= asked.last_offset}
        if asked.last_offset >= self.end_offset or "" in held:
            check_held(self, member, asked)

    check_held = SharePartition._check_held
    return patch.object(SharePartition, "_check_held", check)


@planted_in_cluster("Q5", needs={"shares"})
def the_start_offset_passes_a_record() -> AbstractContextManager[Any]:
    """The start offset moves over the first record that is not settled."""
    drop = SharePartition._drop_settled_front

    def drop_more(self: SharePartition) -> None:
        before = self.start_offset
        drop(self)
        front = self._ranges.all[0] if self._ranges.all else None
        if self.start_offset > before and front is not None and front.state == AVAILABLE:
            self.available -= 1
            self.start_offset += 1
            if len(front) == 1:
                self._ranges.replace(0, 1, None)
            else:
                front.first = self._ranges._firsts[0] = self.start_offset
                self._free.push(self._ranges, front)

    return patch.object(SharePartition, "_drop_settled_front", drop_more)


@planted_in_cluster("Q1", "Q2", "Q5", needs={"shares"})
def snapshots_lack_the_last_update() -> AbstractContextManager[Any]:
    """A snapshot is written without the ranges of the update before it."""
    snapshot = StoredState.snapshot

    def without_the_last(self: StoredState, now_ms: int) -> Any:
        return snapshot(self, now_ms)._replace(batches=self.ranges.all()[:-1])

    return patch.object(StoredState, "snapshot", without_the_last)


@planted_in_cluster("Q1", "Q5", needs={"transactional shares"})
def control_records_swallow_their_neighbours() -> AbstractContextManager[Any]:
    """A stretch that the group does not read takes the record behind it along."""
    spans = LogSpans.__iter__

    def swallow(self: LogSpans) -> Iterator[Span]:
        taken = -1
        for span in spans(self):
            if taken >= span.first:
                yield Span(taken + 1, span.last, span.is_hidden) if taken < span.last else span
            elif span.is_hidden and span.last < self._last:
                taken = span.last + 1
                yield Span(span.first, taken, is_hidden=True)
            else:
                yield span

    return patch.object(LogSpans, "__iter__", swallow)


@planted_in_cluster("Q3", needs={"shares"})
def the_end_of_a_session_releases_all_records() -> AbstractContextManager[Any]:
    """The end of a session releases the records of all members."""
    release = SharePartition.release_member

    def release_all(self: SharePartition, member: str, *arguments: Any, **options: Any) -> int:
        return sum(release(self, each, *arguments, **options) for each in list(self._held))

    return patch.object(SharePartition, "release_member", release_all)


@planted_in_cluster("Q4", needs={"shares"})
def expired_locks_do_not_count() -> AbstractContextManager[Any]:
    """A record whose lock has expired is delivered again with the same count."""
    release = SharePartition._release

    def uncount(self: SharePartition, held: Range, *arguments: Any) -> None:
        if held.delivery_count < self.settings.delivery_limit:
            held.delivery_count -= 1
        release(self, held, *arguments)

    return patch.object(SharePartition, "_release", uncount)


@planted_in_cluster("Q7", needs={"shares"})
def expired_locks_wake_nobody() -> AbstractContextManager[Any]:
    """A fetch that waits is not served when a lock expires."""

    def expire(self: ShareLeader, partition: SharePartition, now_ms: int) -> None:
        if partition.expire(now_ms):
            self.store(None)

    return patch.object(ShareLeader, "_expire", expire)


@planted_in_cluster("Q6", needs={"shares"})
def locks_are_not_limited() -> AbstractContextManager[Any]:
    """An acquisition takes as many records as it wants."""
    init = Acquisition.__init__

    def without_limit(self: Any, settings: Any, *arguments: Any) -> None:
        init(self, settings, *arguments)
        self._room = 1_000_000

    return patch.object(Acquisition, "__init__", without_limit)


@planted_in_cluster("Q8", needs={"committed shares"})
def aborted_records_are_delivered() -> AbstractContextManager[Any]:
    """A group that reads committed records gets aborted ones."""
    return patch.object(LogSpans, "_is_aborted", lambda self, header: False)


@planted_in_cluster("Q1", "Q2", "Q3", "Q5", needs={"shares"})
def a_refused_acknowledgement_has_effects() -> AbstractContextManager[Any]:
    """The records before the one that a member does not hold are settled, and the request is refused."""
    check = SharePartition._check_held

    def check_and_carry_out(self: SharePartition, member: str, asked: Acknowledgement) -> None:
        check(self, member, asked)
        for first, last, kind in acknowledgement_checks.runs(asked, self.start_offset):
            if kind == 1 and self._ranges.all[self._ranges.place(first)].state == ACQUIRED:
                self._settle(first, last, ACKNOWLEDGED)

    return patch.object(SharePartition, "_check_held", check_and_carry_out)


@planted_in_cluster("Q8", needs={"committed shares"})
def open_transactions_are_delivered() -> AbstractContextManager[Any]:
    """A group that reads committed records reads up to the high watermark."""
    return patch.object(ShareLeader, "read_limit", property(lambda self: self.replica.log.high_watermark))


@planted_in_cluster("Q1", "Q2", "Q5", needs={"shares"})
def acquired_records_are_stored_as_accepted() -> AbstractContextManager[Any]:
    """A write of the state describes acquired records as accepted."""

    take_update = SharePartition.take_update

    def settle_held(self: SharePartition) -> Any:
        update = take_update(self)
        held = [each for ranges in self._held.values() for each in ranges]
        batches = [StateBatch(each.first, each.last, ACKNOWLEDGED, each.delivery_count) for each in held]
        return update._replace(batches=sorted([*update.batches, *batches]))

    return patch.object(SharePartition, "take_update", settle_held)
