"""Delayed messages of a partition that this broker leads: tracks pending messages and delivers due messages.

One job at a time runs in a thread pool for a log: it reads the events of newly committed records, or the records of due
messages. The state is computed from the log when the replica becomes leader, and dropped when it stops leading. Nothing
is delivered before the log was read up to the start of the leader epoch, while another broker may lead already, or
while fewer replicas than min.insync.replicas are in sync. The due time is compared with the wall clock again at the
append, so that no message is early if the clock is set back. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from penstock.clock import Clock
from penstock.delay.delivery_batches import DelayBatch, StoredMessage, copies, deliveries
from penstock.delay.due_limit import MAX_DUE, DueLimit
from penstock.delay.packing import DueMessage
from penstock.delay.pending import PendingMessages
from penstock.errors import BrokerError, CorruptLog, ErrorCode, StorageError
from penstock.model import Offset
from penstock.records.batch import BatchHeader, read_header
from penstock.replication.delay_counts import DelayCounts
from penstock.replication.leading_replica import LeadingReplica
from penstock.replication.waiting import settled_by
from penstock.storage.damage import next_damage
from penstock.storage.delayed_records import (
    NotCommitted,
    ReadMessages,
    ScannedEvents,
    WantedMessage,
    read_messages,
    scan_next,
)
from penstock.storage.log import AppendInfo
from penstock.threads import Threads

T = TypeVar("T")

MAX_SLEEP_S = 1.0
"""Time in seconds after which the wall clock is read again, because it may have been set forward."""
PAUSE_S = 0.1
"""Pause in seconds after a failed append of a delivery."""
UNREADABLE_PAUSE_S = 30.0
"""Pause in seconds before a damaged record is read again; it may have been repaired."""
MAX_DUE_BYTES = 8 << 20
"""Size in bytes after which a job stops reading records; the last window of messages may exceed it."""
MOVE_PATIENCE_S = 10.0
"""Time in seconds that retention waits until copies of pending messages are committed."""
MAX_MOVES = 1_000
"""Maximum number of rounds in which pending messages are copied before retention gives up."""


class DelayedLog:
    def __init__(self, replica: LeadingReplica, threads: Threads, clock: Clock, counts: DelayCounts) -> None:
        self.pending = PendingMessages()
        self.applied_offset = replica.log.log_start_offset
        """Offset below which all events of the log were applied to `pending`."""
        self._replica = replica
        self._log = replica.log
        self._threads = threads
        self._clock = clock
        self.counts = self._counts = counts
        self._epoch_start = replica.partition.in_sync.epoch_start
        self._is_running = False
        self._is_stopped = False
        self._delivers_after: Offset | None = None
        """Offset up to which events have to be applied before the next delivery; None if nothing is due."""
        self._scans_from = 0.0
        """Time of the event loop in seconds at which the log is read again after damage."""
        self._scans_at = Offset(0)
        """High watermark at which the log is read again: the file of the next segment covers records up to it."""
        self._has_applied = False
        """True after the first events were applied."""
        self._delivers_from = 0.0
        """Time of the event loop in seconds at which messages are delivered again after a failed append."""
        self._due_limit = DueLimit()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[Offset, Callable[[], None]]] = []

    # --- changes of the replica

    def start(self) -> None:
        self._counts.logs[self] = None
        self._run()

    def stop(self) -> None:
        """Stop deliveries and call all waiting callbacks, because this replica stops leading."""
        self._is_stopped = True
        self._counts.logs.pop(self, None)
        self._cancel_timer()
        waiting, self._waiting = self._waiting, []
        for _, callback in waiting:
            callback()

    def on_high_watermark(self) -> None:
        self._run()

    def on_log_start(self) -> int:
        """Forget pending messages below the log start offset; return their number."""
        return self.pending.drop_below(self._log.log_start_offset)

    # --- state

    @property
    def is_ready(self) -> bool:
        """True if all records below the start of the leader epoch were applied."""
        return self.applied_offset >= self._epoch_start and not self._is_stopped

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call back when all records that are committed now were applied, or when the replica stops leading."""
        needed = max(self._log.high_watermark, self._epoch_start)
        if self._is_stopped or self.applied_offset >= needed:
            callback()
        else:
            self._waiting.append((needed, callback))
            self._run()

    def cancel(
        self, messages: Sequence[int], header: BatchHeader, append: Callable[[], AppendInfo]
    ) -> AppendInfo:
        """Append a batch that cancels messages; BrokerError, without any change, if one of them is not pending.

        The messages of a retried batch are not checked, because the stored batch has cancelled them already.
        """
        if not self.is_ready:
            raise BrokerError(
                ErrorCode.not_enough_replicas, "the delayed messages are being read; try again in a moment"
            )
        if header.has_producer and self._log.producers.check(header) is not None:
            return append()
        taken: list[DueMessage] = []
        try:
            for message in messages:
                if not self.pending.is_cancellable(message):
                    raise BrokerError(
                        ErrorCode.invalid_record,
                        f"the message {message} is not pending: it is unknown, or was delivered or cancelled before",
                    )
                taken.append(self.pending.begin_cancel(message))
            info = append()
        except BrokerError:
            self.pending.give_back(taken)
            raise
        self._counts.cancelled += len(taken)
        return info

    # --- jobs

    def _run(self) -> None:
        """Start the next job. If a message is due, the log is first read up to the present high watermark, because it
        may contain a message that is due earlier.
        """
        if self._is_running or self._is_stopped:
            return
        self._cancel_timer()
        now = asyncio.get_running_loop().time()
        may_deliver = self._may_deliver and now >= self._delivers_from and self._has_due
        if may_deliver and self._delivers_after is None:
            self._delivers_after = self._log.high_watermark
        if may_deliver and self._delivers_after is not None and self.applied_offset >= self._delivers_after:
            self._delivers_after = None
            self._start_delivery(self._due_limit.take(self.pending, self._clock.now_ms()))
        elif self._may_scan and now >= self._scans_from:
            self._start_scan()
        else:
            self._sleep()

    def _start(self, work: Callable[[], T], then: Callable[[T | None, BaseException | None], None]) -> None:
        self._is_running = True
        self._threads.run("read", work).add_done_callback(partial(self._finish, then))

    def _finish(
        self, then: Callable[[T | None, BaseException | None], None], done: asyncio.Future[T]
    ) -> None:
        error = done.exception()
        expected = isinstance(error, BrokerError | CorruptLog | StorageError | OSError)
        try:
            if not self._is_stopped:
                then(None if error else done.result(), error)
        finally:
            self._is_running = False
            self._run()
        if error is not None and not expected:
            raise error

    def _sleep(self) -> None:
        """Set a timer for the next due message or the end of a pause."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        times = []
        first = self.pending.first()
        if first is not None:
            due_at = max(now + (first.due_ms - self._clock.now_ms()) / 1000, self._delivers_from)
            # A due message that cannot be delivered now is tried again after a pause.
            times.append(due_at if due_at > now else now + PAUSE_S)
        if self._may_scan:
            times.append(self._scans_from)
        if times:
            self._timer = loop.call_at(min(max(now, min(times)), now + MAX_SLEEP_S), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._run()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- reading events

    @property
    def _may_scan(self) -> bool:
        return self.applied_offset < self._log.high_watermark >= self._scans_at

    def _start_scan(self) -> None:
        log, applied = self._log, self.applied_offset if self._has_applied else None
        offset = max(self.applied_offset, log.log_start_offset)
        work = partial(scan_next, log, offset, applied, log.high_watermark, self._epoch_start)
        self._start(work, self._on_scanned)

    def _on_scanned(self, scanned: ScannedEvents | NotCommitted | None, error: BaseException | None) -> None:
        if isinstance(scanned, NotCommitted):
            self._scans_at = scanned.end_offset
        elif scanned is not None:
            self._has_applied = True
            if scanned.filed is not None:
                self.pending.apply_segment(scanned.filed)
            self.pending.apply(scanned.events)
            self.applied_offset = scanned.end_offset
            if scanned.filed is not None:
                self.on_log_start()
            elif self._log.log_start_offset > 0:
                self._drop_deleted(scanned)
        elif self._log.log_start_offset > self.applied_offset:
            self.applied_offset = self._log.log_start_offset
        else:
            self._on_damage()
        self._tell_waiting()

    def _drop_deleted(self, scanned: ScannedEvents) -> None:
        """Forget the messages below the log start offset if a scanned batch has records on both sides of it."""
        if any(
            getattr(event, "offset", scanned.end_offset) < self._log.log_start_offset
            for event in scanned.events
        ):
            self.on_log_start()

    def _on_damage(self) -> None:
        """Wait until a damaged batch is repaired from another replica; without other replicas, continue after it."""
        damaged = next_damage(self._log.damage, self.applied_offset)
        if damaged is not None and self.applied_offset in damaged and self._replica.is_only_replica:
            self.applied_offset = damaged.end_offset
            return
        self._replica.on_unreadable(self.applied_offset)
        self._counts.unreadable += 1
        self._scans_from = asyncio.get_running_loop().time() + MAX_SLEEP_S

    def _tell_waiting(self) -> None:
        due = [callback for offset, callback in self._waiting if offset <= self.applied_offset]
        self._waiting = [each for each in self._waiting if each[0] > self.applied_offset]
        for callback in due:
            callback()

    # --- retention

    async def move_below(self, offset: Offset) -> bool:
        """Copy the pending messages below `offset` to the end of the log, so that retention may delete them there.

        The copies keep the ids. Return True when all copies are committed; False if a message could not be copied.
        """
        for _ in range(MAX_MOVES):
            if not await self._all_applied():
                return False
            wanted = [
                WantedMessage(each, self.pending.offset_of(each.message))
                for each in islice(self.pending.stored_below(offset), MAX_DUE)
            ]
            if not wanted:
                return self._may_deliver and not self.pending.is_in_flight_below(offset)
            read = await self._threads.run(
                "background",
                partial(read_messages, self._log, wanted, self._log.high_watermark, MAX_DUE_BYTES),
            )
            if read.unreadable or not self._store_again(read.stored):
                return False
        return False

    def _store_again(self, stored: Sequence[StoredMessage]) -> bool:
        """Append copies of the messages that are still pending, so that no delivered message becomes pending again."""
        now_ms = self._clock.now_ms()
        kept = [each for each in stored if self.pending.is_cancellable(each.due.message)]
        for copy in copies(kept, now_ms) if self._may_deliver else ():
            batch = memoryview(copy.batch)
            try:
                self._replica.append_delivery(batch, read_header(batch), now_ms)
            except BrokerError:
                return False
            self._counts.moved += len(copy.messages)
        return self._may_deliver

    async def _all_applied(self) -> bool:
        """Wait until all records in the log are committed and applied; False after `MOVE_PATIENCE_S`, or if the replica
        stops leading.
        """
        done, settle = settled_by()
        self._waiting.append((self._log.log_end_offset, partial(settle, None)))
        self._tell_waiting()
        self._run()
        await asyncio.wait([done], timeout=MOVE_PATIENCE_S if not self._is_stopped else 0.0)
        return done.done() and not self._is_stopped

    # --- delivering

    @property
    def _may_deliver(self) -> bool:
        replica = self._replica
        return (
            self.is_ready
            and replica.partition.is_leader
            and not (replica.is_in_doubt or replica.is_under_min_insync or self._log.failed)
        )

    @property
    def _has_due(self) -> bool:
        first = self.pending.first()
        return first is not None and first.due_ms <= self._clock.now_ms()

    def _start_delivery(self, due: list[DueMessage]) -> None:
        wanted = [WantedMessage(each, self.pending.offset_of(each.message)) for each in due]
        log, below = self._log, self._log.high_watermark

        def work() -> tuple[list[DelayBatch], ReadMessages]:
            read = read_messages(log, wanted, below, MAX_DUE_BYTES)
            return deliveries(read.stored), read

        self._start(work, partial(self._on_read, due))

    def _on_read(
        self,
        due: list[DueMessage],
        made: tuple[list[DelayBatch], ReadMessages] | None,
        error: BaseException | None,
    ) -> None:
        if made is None:
            self._give_back(due)
            return
        batches, read = made
        self.pending.give_back(each.due for each in read.left)
        if read.unreadable:
            self._on_unreadable(read.unreadable)
        left = [message for delivery in batches for message in delivery.messages]
        for delivery in batches:
            if not self._append(delivery):
                self._give_back(left)
                return
            left = left[len(delivery.messages) :]

    def _append(self, delivery: DelayBatch) -> bool:
        """Append a batch of due messages; False if this is not possible now."""
        now_ms = self._clock.now_ms()
        if not self._may_deliver or self._is_early(delivery, now_ms):
            return False
        batch = memoryview(delivery.batch)
        try:
            self._replica.append_delivery(batch, read_header(batch), now_ms, keeps_time=True)
        except BrokerError:
            return False
        self._counts.on_delivered(delivery.messages, now_ms)
        return True

    def _is_early(self, delivery: DelayBatch, now_ms: int) -> bool:
        """True if a message is not due any more, because the clock was set back."""
        return any(each.due_ms > now_ms for each in delivery.messages)

    def _give_back(self, messages: Sequence[DueMessage]) -> None:
        self.pending.give_back(messages)
        self._delivers_from = asyncio.get_running_loop().time() + PAUSE_S

    def _on_unreadable(self, wanted: Sequence[WantedMessage]) -> None:
        """Read damaged records again later; forget messages whose records were deleted."""
        damaged: list[DueMessage] = []
        for due, offset in wanted:
            if offset < self._log.log_start_offset:
                self.pending.forget(due.message)
            else:
                self._replica.on_unreadable(Offset(offset))
                damaged.append(due)
        if damaged:
            self._counts.unreadable += len(damaged)
            asyncio.get_running_loop().call_later(UNREADABLE_PAUSE_S, self._try_again, damaged)

    def _try_again(self, messages: list[DueMessage]) -> None:
        if not self._is_stopped:
            self.pending.give_back(messages)
            self._run()
