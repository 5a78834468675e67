"""Planted bugs of delayed messages: each shows a message early or twice, loses it, or undoes a cancellation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import PropertyMock, patch

from planting import planted_in_cluster

from penstock.delay.events import Delayed, Ended, Event, events_of
from penstock.delay.headers import CANCEL
from penstock.delay.pending import PendingMessages
from penstock.delay.segment_events import SegmentEvents
from penstock.delay.visible import VisibleRecords
from penstock.records.batch import BatchHeader
from penstock.records.selecting import Match, Selected
from penstock.records.walking import layouts
from penstock.replication import delayed_delivery
from penstock.replication.delayed_delivery import DelayedLog
from penstock.server.handlers.fetch import FetchOperation
from penstock.server.projected_fetch import ProjectedFetchOperation
from penstock.storage import delay_files, delayed_records

NEEDS = frozenset({"delayed"})


@planted_in_cluster("delivered", needs=NEEDS)
def pending_messages_are_not_rebuilt() -> AbstractContextManager[Any]:
    """A new leader begins at the end of its log."""
    begin = DelayedLog.__init__

    def at_the_end(self: DelayedLog, replica: Any, *others: Any) -> None:
        begin(self, replica, *others)
        self.applied_offset = replica.log.log_end_offset

    return patch.object(DelayedLog, "__init__", at_the_end)


@planted_in_cluster("delivered once", needs=NEEDS)
def new_leaders_do_not_wait_for_their_epoch() -> AbstractContextManager[Any]:
    """A new leader delivers before it has read the deliveries of the last leader."""
    return patch.object(DelayedLog, "is_ready", PropertyMock(return_value=True))


@planted_in_cluster("delivered once", needs=NEEDS)
def messages_in_flight_are_taken_again() -> AbstractContextManager[Any]:
    """A message stays pending while its delivery is not committed."""
    take_due = PendingMessages.take_due

    def keep(self: PendingMessages, now_ms: int, limit: int) -> Any:
        due = take_due(self, now_ms, limit)
        for each in due:
            self.queue.add(each.due_ms, each.message)
        return due

    return patch.object(PendingMessages, "take_due", keep)


@planted_in_cluster("I6", needs=NEEDS)
def aborted_messages_are_delivered() -> AbstractContextManager[Any]:
    """The end of a transaction counts as a commit."""
    end = PendingMessages._end
    return patch.object(
        PendingMessages, "_end", lambda self, event: end(self, Ended(event.producer_id, is_commit=True))
    )


@planted_in_cluster("I6", "early", needs=NEEDS)
def messages_are_delivered_before_their_transaction_commits() -> AbstractContextManager[Any]:
    """A message of an open transaction is pending at once."""
    apply = PendingMessages.apply

    def at_once(self: PendingMessages, found: Iterable[Event]) -> None:
        apply(
            self,
            (each._replace(producer_id=-1) if isinstance(each, Delayed) else each for each in found),
        )

    return patch.object(PendingMessages, "apply", at_once)


@planted_in_cluster("cancel", needs=NEEDS)
def cancellations_are_kept_in_memory() -> AbstractContextManager[Any]:
    """A cancellation removes the message from the leader's memory, and is no event of the log."""

    def without_cancels(batch: memoryview, header: BatchHeader, limit: int) -> list[Event]:
        return [] if CANCEL.encode() in bytes(batch) else events_of(batch, header, limit)

    return _both(
        patch.object(delayed_records, "events_of", without_cancels),
        patch.object(delay_files, "events_of", without_cancels),
    )


@planted_in_cluster("early", needs=NEEDS)
def hidden_records_are_shown() -> AbstractContextManager[Any]:
    """Readers are shown every record of the log."""

    def all_records(self: VisibleRecords, body: Any, header: BatchHeader) -> Selected:
        found = layouts(bytes(body), header.record_count)
        return Selected([Match(each[0], each[1], each[3]) for each in found], 0)

    return patch.object(VisibleRecords, "select", all_records)


@planted_in_cluster("early", needs=NEEDS)
def due_times_are_reached_a_second_early() -> AbstractContextManager[Any]:
    """The due time of a message is not compared with the wall clock."""
    take_due = PendingMessages.take_due

    def early(self: PendingMessages, now_ms: int, limit: int) -> Any:
        return take_due(self, now_ms + 1_000, limit)

    return _both(
        patch.object(PendingMessages, "take_due", early),
        patch.object(DelayedLog, "_has_due", PropertyMock(return_value=True)),
        patch.object(DelayedLog, "_is_early", lambda *_: False),
    )


@planted_in_cluster("delivered", needs=NEEDS | {"retention"})
def retention_drops_pending_messages() -> AbstractContextManager[Any]:
    """The log start moves without regard to pending messages."""

    async def nothing(self: DelayedLog, offset: Any) -> bool:
        self._log.advance_log_start(offset)
        self.on_log_start()
        return True

    return patch.object(DelayedLog, "move_below", nothing)


@planted_in_cluster("delivered once", needs=NEEDS | {"retention"})
def copies_are_new_messages() -> AbstractContextManager[Any]:
    """A message that is stored again before its segment is deleted gets another id."""
    add = PendingMessages._add
    return patch.object(
        PendingMessages, "_add", lambda self, event: add(self, event._replace(message=event.offset))
    )


@planted_in_cluster("delivered once", "cancel", needs=NEEDS)
def files_forget_settled_messages() -> AbstractContextManager[Any]:
    """The file of a segment has only the messages that are delayed in it."""
    return patch.object(PendingMessages, "apply_segment", _without("settled"))


@planted_in_cluster("delivered", needs=NEEDS)
def files_forget_open_transactions() -> AbstractContextManager[Any]:
    """The file of a segment has no messages whose transaction ends in a later segment."""
    return patch.object(PendingMessages, "apply_segment", _without("open"))


@planted_in_cluster("delivered", "delivered once", "cancel", needs=NEEDS)
def files_are_used_for_what_is_behind_them_too() -> AbstractContextManager[Any]:
    """A file that covers the first part of a segment counts for all of it."""
    scan_next = delayed_records.scan_next

    def all_of_it(log: Any, offset: Any, applied: Any, below: Any, epoch_start: Any) -> Any:
        found = scan_next(log, offset, applied, below, epoch_start)
        if isinstance(found, delayed_records.ScannedEvents) and found.filed is not None:
            return found._replace(end_offset=below)
        return found

    return patch.object(delayed_delivery, "scan_next", all_of_it)


@planted_in_cluster("delivered", needs=NEEDS | {"jump_clock"})
def due_times_follow_the_monotonic_clock() -> AbstractContextManager[Any]:
    """A leader reads the wall clock once, and counts from there on: it misses a clock that is set forward."""
    begin = DelayedLog.__init__

    def with_one_look(self: DelayedLog, replica: Any, threads: Any, clock: Any, counts: Any) -> None:
        begin(self, replica, threads, _Counting(clock), counts)

    return patch.object(DelayedLog, "__init__", with_one_look)


@planted_in_cluster("early", needs=NEEDS | {"rack readers"})
def followers_serve_hidden_records() -> AbstractContextManager[Any]:
    """A follower shows every record of its log."""
    find = ProjectedFetchOperation._find

    def on_leaders(self: ProjectedFetchOperation, index: int, read: Any) -> Any:
        return (
            find(self, index, read)
            if read.replica.partition.is_leader
            else FetchOperation._find(self, index, read)
        )

    return patch.object(ProjectedFetchOperation, "_find", on_leaders)


def _without(name: str) -> Any:
    """`apply_segment` of events that lack one of their parts."""
    apply = PendingMessages.apply_segment

    def lacking(self: PendingMessages, found: SegmentEvents) -> None:
        apply(self, replace(found, **{name: getattr(SegmentEvents(), name)}))

    return lacking


class _Counting:
    """The wall clock as it was once, and the time since then."""

    def __init__(self, clock: Any) -> None:
        self.monotonic = clock.monotonic
        self._start_ms = clock.now_ms() - int(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        return int(self._start_ms + self.monotonic() * 1000)


class _both:
    """Several patches as one."""

    def __init__(self, *patches: AbstractContextManager[Any]) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for each in self._patches:
            each.__enter__()

    def __exit__(self, *error: Any) -> None:
        for each in reversed(self._patches):
            each.__exit__(*error)
