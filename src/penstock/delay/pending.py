"""Pending messages of a partition: delayed messages that were neither delivered nor cancelled, by the committed log.

`apply` gets the events of the log in the order of offsets, up to the high watermark. The leader has appended further
records: messages whose delivery or cancellation it has appended are *in flight* until the event is applied from the
log. They are not delivered or cancelled again meanwhile. A replica that becomes leader starts with an empty set, and
delivers nothing before it has applied all records from before its leader epoch: then every delivery by an earlier
leader was either applied, or is not in the log and never will be. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.delay.due_queue import DueQueue
from penstock.delay.events import Delayed, Ended, EventState
from penstock.delay.moved_offsets import MovedOffsets
from penstock.delay.packing import DueMessage
from penstock.delay.segment_events import SegmentEvents


class PendingMessages(EventState):
    def __init__(self) -> None:
        self.queue = DueQueue()
        """Messages that are pending and not in flight."""
        self.in_flight: dict[int, int] = {}
        """Due times by id of messages whose delivery or cancellation is being appended or is not committed yet."""
        self.open: dict[int, list[Delayed]] = {}
        self._moved = MovedOffsets()
        """Present offsets of messages that were copied."""

    def __len__(self) -> int:
        return len(self.queue) + len(self.in_flight)

    @property
    def is_empty(self) -> bool:
        """True if no message is pending, in flight, or part of an open transaction."""
        return not (len(self) or self.open)

    # --- the log

    def apply_segment(self, found: SegmentEvents) -> None:
        """Apply all events of a segment, none of which was applied before."""
        for producer_id, is_commit in found.ends.items():
            self._end(Ended(producer_id, is_commit))
        for block in found.blocks:
            self.queue.add_block(block)
        for copy in found.copies.values():
            self._add(copy)
        for producer_id, records in found.open.items():
            self.open.setdefault(producer_id, []).extend(records)
        if self._moved or self.in_flight:
            for message in found.settled:
                self._moved.discard(message)
                self.in_flight.pop(message, None)
        self.queue.discard_sorted(found.settled)

    def _add_run(self, pairs: bytes) -> None:
        self.queue.add_run(pairs)

    def _add(self, event: Delayed) -> None:
        message = event.message
        if event.offset != message:
            self._moved.put(message, event.offset)
        if message not in self.in_flight and message not in self.queue:
            self.queue.add(event.due_ms, message)

    def _settle(self, message: int) -> None:
        self._moved.discard(message)
        if self.in_flight.pop(message, None) is None:
            self.queue.discard(message)

    def drop_below(self, log_start_offset: int) -> int:
        """Forget messages whose records are below the log start offset; return their number."""
        for producer_id, records in tuple(self.open.items()):
            self.open[producer_id] = [each for each in records if each.offset >= log_start_offset]
        if not self._moved:
            return self.queue.discard_below(log_start_offset)
        lost = list(self.stored_below(log_start_offset))
        for each in lost:
            self._moved.discard(each.message)
            self.queue.discard(each.message)
        return len(lost)

    # --- where messages are

    def offset_of(self, message: int) -> int:
        """Offset of the record that contains the message."""
        return self._moved.get(message, message)

    def stored_below(self, offset: int) -> Iterator[DueMessage]:
        """Pending messages that are not in flight and whose records are below `offset`."""
        return (each for each in self.queue.below(offset) if self.offset_of(each.message) < offset)

    def is_in_flight_below(self, offset: int) -> bool:
        return any(self.offset_of(message) < offset for message in self.in_flight)

    # --- the leader

    def first(self) -> DueMessage | None:
        return self.queue.first()

    def take_due(self, now_ms: int, limit: int) -> list[DueMessage]:
        """Take at most `limit` due messages, in the order of due time and id. They are in flight from now on."""
        due = self.queue.pop_due(now_ms, limit)
        self.in_flight.update((each.message, each.due_ms) for each in due)
        return due

    def give_back(self, messages: Iterable[DueMessage]) -> None:
        """Make messages pending again, because their delivery or cancellation was not appended."""
        for due_ms, message in messages:
            del self.in_flight[message]
            self.queue.add(due_ms, message)

    def forget(self, message: int) -> None:
        """Forget a message whose record was deleted."""
        self._settle(message)

    def is_cancellable(self, message: int) -> bool:
        return message in self.queue

    def due_of(self, message: int) -> int | None:
        """Due time of a pending message, in flight or not; None if it is not pending."""
        found = self.in_flight.get(message)
        return self.queue.due_of(message) if found is None else found

    def begin_cancel(self, message: int) -> DueMessage:
        """Take a message in order to append its cancellation. It is in flight from now on; `give_back` undoes this."""
        due_ms = self.queue.due_of(message)
        assert due_ms is not None, "only a pending message is cancelled"
        self.queue.discard(message)
        self.in_flight[message] = due_ms
        return DueMessage(due_ms, message)
