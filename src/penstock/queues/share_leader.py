"""A share-partition on the broker that leads its partition: loading, acquiring, storing and waiting fetches.

One write of the state is in flight at a time; decisions that are made meanwhile are in the next write. A failed write
is repeated until it succeeds or this leader is fenced; no records are acquired meanwhile. A fenced leader closes, and
the state is loaded again if this broker still leads. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.errors import BrokerError, CorruptLog, ErrorCode, StorageError
from penstock.model import ShareKey
from penstock.observability.logs import Logger
from penstock.queues.acquire_loop import acquire_by_offset
from penstock.queues.dead_letter_writer import DeadLetterWriter
from penstock.queues.leader_context import LeaderContext
from penstock.queues.leader_context import WaitingFetch as WaitingFetch
from penstock.queues.live_records import LiveRecords
from penstock.queues.ordered_acquiring import OrderedAcquiring
from penstock.queues.projected_source import make_source
from penstock.queues.share_partition import REJECTED, SharePartition
from penstock.queues.share_reading import Fetched, Peeked, ShareFetchLimits, peek
from penstock.queues.start_offset import find_start_offset
from penstock.queues.state_client import RETRIABLE, ShareStateClient
from penstock.queues.state_verifier import StateVerifier
from penstock.queues.state_writer import RETRY_SECONDS, StateWriter, Stored
from penstock.queues.states import (
    Acknowledgement,
    AcknowledgeType,
    AcquireMode,
    Reason,
    StateUpdate,
    from_wall_clock,
    to_wall_clock,
)
from penstock.queues.waiting_fetches import WaitingFetches
from penstock.replication.projections import Projection
from penstock.replication.replica import Replica

_STORE_SECONDS = 1.0
"""Time in seconds after which settled hidden offsets are stored, unless an acknowledgement is stored before."""
NO_START_OFFSET = -1


class ShareLeader:
    def __init__(
        self, key: ShareKey, replica: Replica, context: LeaderContext, projection: Projection | None = None
    ) -> None:
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.partition.leader_epoch
        self.partition: SharePartition | None = None
        """State of the share-partition; None until it is loaded."""
        self.error: BrokerError | None = None
        """Reason why this object is closed; None while it is open."""
        self._context = context
        self.states: ShareStateClient = context.states
        self.logger: Logger = context.logger
        self.settings = context.settings_of(key.group_id)
        self._waiting = WaitingFetches(self, replica.data_waiters, self._on_data)
        self.source = make_source(replica, projection, context.threads, self.wake)
        self._store_timer: asyncio.TimerHandle | None = None
        self._writer: StateWriter | None = None
        self.letters = DeadLetterWriter(self, context)
        self.live = LiveRecords(context.threads, context.bodies)
        self._ordered = OrderedAcquiring(self, context.threads)
        self._loading: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._load())
        self._verifier: StateVerifier | None = None

    # --- loading and closing

    async def _load(self) -> None:
        try:
            while self.error is None:
                try:
                    await self._read()
                    break
                except BrokerError as error:
                    if error.code not in RETRIABLE:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)
        except BrokerError as error:
            self.close(error)
        except Exception as error:  # noqa: BLE001 - fetches must not wait for ever
            self._context.logger.error(
                "share-partition could not be loaded", error, share_partition=self.key.name
            )
            self.close(BrokerError(ErrorCode.unknown_server_error, "the share-partition was not loaded"))
        finally:
            self._loading = None
        self.wake()

    async def _read(self) -> None:
        state = await self._context.states.read(self.key, self.leader_epoch)
        start_offset = state.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = await find_start_offset(
                self.replica, self.settings.offset_reset, self._context.threads, self._context.wall_ms()
            )
        batches = from_wall_clock(state.batches, self.now_ms(), self._context.wall_ms())
        partition = SharePartition(start_offset, self.settings.partition, batches, state.letters)
        if state.start_offset == NO_START_OFFSET:
            # Stored before any record is delivered: otherwise another leader would choose a start offset again, and
            # perhaps skip records.
            await self._context.states.write(
                self.key, (state.state_epoch, self.leader_epoch), partition.take_update()
            )
        if self.error is None:
            self.partition = partition
            self._writer = StateWriter(self.key, partition, (state.state_epoch, self.leader_epoch), self)
            self._verifier = StateVerifier(self.key, state.state_epoch, self)
            self._context.timers.schedule(self.key, partition.next_deadline_ms)
            self.letters.wake()

    @property
    def is_loading(self) -> bool:
        return self._loading is not None

    async def loaded(self) -> None:
        """Wait until the state is loaded, or the load has failed."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    def close(self, error: BrokerError) -> None:
        """Respond to all waiting acknowledgements with the error, and wake waiting fetches, which then try again."""
        if self.error is not None:
            return
        self.error = error
        if self._loading is not None and self._loading is not asyncio.current_task():
            self._loading.cancel()
        if self._verifier is not None:
            self._verifier.close()
        self.letters.close()
        self.source.close()
        if self._store_timer is not None:
            self._store_timer.cancel()
        self._ordered.close()
        if self._writer is not None:
            self._writer.close(BrokerError(ErrorCode.not_leader_or_follower, str(error)))
        self._context.closed(self)
        self.partition = None
        self.wake()

    def retire(self) -> None:
        """Unload the state as soon as it is stored, because no session uses it. An administrator may then reset it."""
        partition = self.partition
        if partition is None or partition.acquired or partition.archiving or self._waiting:
            return
        if self._writer is not None and self._writer.is_busy:
            self.store(lambda error: self._retire_later() if error is None else None)
        else:
            self.close(BrokerError(ErrorCode.not_leader_or_follower, "no session uses the share-partition"))

    def _retire_later(self) -> None:
        asyncio.get_running_loop().call_soon(self.retire)

    def verify(self, pause_seconds: float = 0.0) -> None:
        """Check if an administrator has reset the state, and load it again if so. Nothing is done if the last check was
        less than `pause_seconds` ago.
        """
        if self._verifier is not None:
            self._verifier.look(pause_seconds)

    @property
    def is_leading(self) -> bool:
        """True if this broker still leads in the leader epoch of this object."""
        partition = self.replica.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    def follow_settings(self) -> None:
        """Apply changed settings of the group."""
        self.settings = self._context.settings_of(self.key.group_id)
        if self.partition is not None:
            self.partition.follow_settings(self.settings.partition)
            self.letters.wake()
            self.wake()

    def read_through(self, projection: Projection | None) -> None:
        """Read this projection from now on; None for the stored log."""
        if self.source.identity != (b"" if projection is None else projection.identity):
            self.source.close()
            self.source = make_source(self.replica, projection, self._context.threads, self.wake)
            self.wake()

    @property
    def is_stalled(self) -> bool:
        """True if the last write has failed. Nothing is acquired until a write succeeds."""
        return self._writer is not None and self._writer.is_stalled

    @property
    def write_timeout_ms(self) -> int:
        return self.settings.write_timeout_ms

    def now_ms(self) -> int:
        return self._context.timers.now_ms()

    def dated(self, update: StateUpdate) -> StateUpdate:
        """Convert the times of an update to wall-clock times."""
        batches = to_wall_clock(update.batches, self.now_ms(), self._context.wall_ms())
        return update._replace(batches=batches)

    @property
    def lock_ms(self) -> int:
        return self.settings.partition.lock_ms

    # --- acquiring

    @property
    def read_limit(self) -> int:
        """Offset below which the group may read: the last stable offset or the high watermark."""
        log = self.replica.log
        return log.last_stable_offset if self.settings.is_committed else log.high_watermark

    def has_work(self) -> bool:
        """True if a fetch may find records; False while a read or a write is in progress for which it has to wait."""
        partition = self.partition
        return (
            partition is not None
            and not self.is_stalled
            and not self.source.is_reading
            and self._ordered.is_ready(partition)
            and partition.next_span(self.read_limit) is not None
        )

    def has_records(self) -> bool:
        """True if a fetch would find records now; WouldBlock if that is not known. Settles hidden offsets."""
        partition = self.partition
        if partition is None or not self.source.identity or not self._ordered.is_ready(partition):
            return self.has_work()
        look = ShareFetchLimits("", 0, 0, AcquireMode.RECORD_LIMIT, 1)
        while not self.is_stalled and partition.next_span(self.read_limit) is not None:
            before = partition.progress
            self.acquire_once(partition, look, -1, self.now_ms())
            if before == partition.progress:
                return True
        return False

    def acquire(self, wanted: ShareFetchLimits, now_ms: int) -> Fetched:
        """Acquire records for a member; WouldBlock if batch headers are not in memory."""
        partition = self.partition
        if partition is None or self.is_stalled:
            return Fetched([], [])
        partition.on_log_start(self.replica.log.log_start_offset)
        self._expire(partition, now_ms)
        if partition.order is None:
            fetched = acquire_by_offset(self, partition, wanted, now_ms)
        else:
            fetched = self._ordered.acquire(partition, wanted, now_ms)
        if fetched.acquired:
            self._context.timers.schedule(self.key, partition.next_deadline_ms)
        self.letters.wake()
        return fetched

    def acquire_once(
        self, partition: SharePartition, wanted: ShareFetchLimits, sent: int, now_ms: int
    ) -> Fetched | None:
        """Acquire from the next span; None if there is none."""
        below = self.read_limit
        span = partition.next_span(below)
        if span is None:
            return None
        try:
            is_committed = self.settings.is_committed
            continued = sent if wanted.is_continued else None
            spans = self.source.spans(*span, wanted.max_bytes, below, continued, is_committed=is_committed)
            acquired = partition.acquire(
                wanted.member,
                spans,
                wanted.max_records,
                wanted.batch_size,
                wanted.mode,
                now_ms,
                wanted.has_others,
                wanted.lock_ms,
            )
        except (CorruptLog, StorageError) as error:
            raise BrokerError(ErrorCode.corrupt_message, str(error)) from error
        self.source.used(spans, partition.end_offset)
        if self._store_timer is None and partition.has_changes:
            self._store_timer = asyncio.get_running_loop().call_later(_STORE_SECONDS, self._store_hidden)
        parts, sent = spans.slices(acquired, sent)
        return Fetched(acquired, list(parts), sent)

    def _store_hidden(self) -> None:
        """Store the hidden offsets that were settled because they have no records for this group."""
        self._store_timer = None
        if self.partition is not None and self.partition.has_changes:
            self.store(None)

    def peek(self, max_records: int, max_bytes: int) -> Peeked:
        """Return the first records that are not settled, without acquiring them; WouldBlock if not in memory."""
        if self.partition is None:
            return Peeked([], [])
        self.partition.on_log_start(self.replica.log.log_start_offset)
        self.has_records()  # called only to settle hidden offsets
        limits = self.read_limit, max_records, max_bytes
        return peek(self.source, self.partition, *limits, is_committed=self.settings.is_committed)

    async def warm(self) -> None:
        """Read records into memory: those of the next acquisition, or those that the last `peek` did not find there."""
        if self.partition is not None:
            partition, below = self.partition, self.read_limit
            first, *_ = partition.next_span(below) or (partition.start_offset,)
            await self.source.warm(first, below, first if partition.order is None else partition.start_offset)

    def available_bytes(self, at_most: int) -> int:
        """Number of bytes that a fetch would find, at most `at_most`; used for fetches with a minimum of bytes."""
        partition = self.partition
        span = None if partition is None else partition.next_span(self.read_limit)
        return 0 if span is None else self.source.available_bytes(span[0], self.read_limit, at_most)

    # --- acknowledging

    def acknowledge(
        self,
        member: str,
        asked: Sequence[Acknowledgement],
        now_ms: int,
        newest: AcknowledgeType,
        stored: Stored,
        delay_ms: int | None = None,
        *,
        is_strict: bool = False,
        reason: Reason = REJECTED,
    ) -> None:
        """Apply acknowledgements; `stored` is called when they are durable. BrokerError if they are refused.

        `delay_ms` replaces the back-off of released records, and the lock time of renewed records. `is_strict` refuses
        records that are settled already. `reason` is the reason of rejected records.
        """
        partition = self.partition
        if partition is None:
            raise BrokerError(ErrorCode.invalid_record_state, "the member holds no record of this partition")
        partition.on_log_start(self.replica.log.log_start_offset)
        partition.acknowledge(member, asked, now_ms, newest, delay_ms, is_strict=is_strict, reason=reason)
        self._context.timers.schedule(self.key, partition.next_deadline_ms)
        self.store(stored)
        self.wake()

    def release_member(self, member: str, *, is_lost: bool = False) -> None:
        """Release all records of a member whose session has ended: at once, or after the back-off with `is_lost`, if
        its connection was lost.
        """
        partition = self.partition
        if partition is not None and partition.release_member(member, self.now_ms(), is_lost=is_lost):
            self._context.timers.schedule(self.key, partition.next_deadline_ms)
            self.store(None)
            self.wake()

    # --- locks

    def on_deadline(self) -> None:
        partition = self.partition
        if partition is not None:
            self._expire(partition, self._context.timers.now_ms())
            self._context.timers.schedule(self.key, partition.next_deadline_ms)

    def _expire(self, partition: SharePartition, now_ms: int) -> None:
        if partition.expire(now_ms):
            self.store(None)
            self.wake()

    def store(self, stored: Stored | None) -> None:
        """Write the changes; `stored` is called when all decisions up to now are durable."""
        assert self._writer is not None
        self._writer.store(stored)
        if self.partition is not None:
            self._ordered.free_keys_when(self.partition, self._writer.store)
        self.letters.wake()

    # --- waiting fetches

    def wait(self, fetch: WaitingFetch) -> None:
        """Serve a fetch when there are records, after earlier waiting fetches."""
        self._waiting.add(fetch)

    def stop_waiting(self, fetch: WaitingFetch) -> None:
        self._waiting.discard(fetch)

    def _on_data(self) -> None:
        if self.error is None and not self.is_leading:
            self.close(BrokerError(ErrorCode.not_leader_or_follower))
        else:
            self.wake()

    def wake(self) -> None:
        """Schedule waiting fetches to be served, as many as can find records."""
        self._waiting.wake()
