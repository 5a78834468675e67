"""Replica of a partition on this broker: its log, its role, and the requests that wait for offsets of its log.

Loop thread only. A leader appends batches of producers, a follower appends batches fetched from its leader. Requests
that wait for a leader fail when it stops leading. Appends keep their order: while an append is held until its records
were checked in a thread pool, or until the transaction coordinator has responded, later appends queue after it, so that
no batch of a producer overtakes an earlier one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.cluster.image import PartitionPhase
from penstock.config import Durability
from penstock.errors import BrokerError, ErrorCode
from penstock.model import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, read_header
from penstock.records.control import Marker, build_marker
from penstock.replication.admission import (
    ACKS_ALL,
    ACKS_LEADER,
    Admission,
    LengthCheck,
    not_enough_replicas_after_append,
)
from penstock.replication.delay_counts import DelayCounts
from penstock.replication.delayed_delivery import DelayedLog
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync import InSync
from penstock.replication.keyed_log import KeyedLog
from penstock.replication.partition import ReplicatedPartition
from penstock.replication.projected_log import ScanSlots
from penstock.replication.projections import Projections
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.truncation import diverging_epoch, gives_up_committed
from penstock.replication.waiting import CommitCallback, CommitWaiters, DataWaiters, settled_by
from penstock.storage.jobs import FlushJob
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.threads import Threads

_WRITEBACK_BYTES = 8 << 20


class ReplicaListener(Protocol):
    """Fetch session of a follower, which gets a response when the log of a replica has grown."""

    def on_replica_change(self, replica: Replica) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """Parts of the broker that all of its replicas share."""

    flusher: Flusher
    threads: Threads
    refused: RefusedBatches
    changed: dict[Replica, None]
    """Replicas with appends since their last checkpoint."""
    upkeep: dict[Replica, None]
    """Replicas that the maintenance has to visit, because they have an index by key, delayed messages, projections or
    suspect offsets.
    """
    on_in_sync_due: Callable[[], None]
    """Called when the in-sync set of a replica may have to change."""
    scan_slots: ScanSlots
    delay_counts: DelayCounts = field(default_factory=DelayCounts)
    length_limits: dict[str, LengthCheck] = field(default_factory=dict)
    """Checks of topics whose queues have a maximum length, by topic."""


class Replica:
    notes_writers = False
    """True while the broker records the clients that write to this partition: the partition is being removed, or a plan
    of its removal was requested.
    """
    _delivers = False

    def __init__(self, log: Log, durability: Durability, context: ReplicaContext) -> None:
        self.name, self.topic_id = log.topic_partition, log.topic_id
        self.log = log
        self.partition = ReplicatedPartition(durability, log)
        self.partition_epoch = -1
        """Partition epoch of the partition state from which this replica has its role."""
        self.unclean_epoch = NO_LEADER_EPOCH
        """Leader epoch of the last unclean election, whose leader may lack committed records."""
        self.min_insync_replicas = 1
        self.adding_replicas = 0
        """Number of replicas that a reassignment in progress adds to the partition."""
        self.phase, self.is_ending = PartitionPhase.ACTIVE, False
        """Phase of the partition's removal; `is_ending` while this leader completes it, so that nothing is appended."""
        self.data_waiters = DataWaiters()
        self.projections = Projections(log, self.data_waiters, context.scan_slots, self._needs_upkeep)
        self.listeners: dict[ReplicaListener, None] = {}
        self.flushes_as_follower = False
        """True if this follower has to fsync records before the leader counts them as replicated."""
        self.is_throttled_as_leader = self.is_throttled_as_follower = False
        self.archived_offset: Offset | None = None
        """Offset from which records must not be removed; None if the topic has no `archive.required`."""
        self.may_refetch = bool(log.damage)
        """True if the log was damaged at the start and all Fetch requests since then have reported that to the leader.
        The replica was then never in sync, so that no committed record is stored only here."""
        self.suspects: set[Offset] = set()
        """Offsets at which reads met damage that is not recorded in the log; their segments will be scrubbed."""
        self.truncating: asyncio.Future[None] | None = None
        """Running truncation; the replica takes no role before it is done. None without one."""
        self.on_marker: Callable[[Marker, AppendInfo], None] | None = None
        """Called after each transaction marker that is appended to this replica as leader."""
        self._admission = Admission(
            log, context.threads, context.refused, self.append_as_leader, lambda: self.refuses_acks_all
        )
        self._context, self._admission.length_limits = context, context.length_limits
        self.verified, self.append = self._admission.verified, self._admission.append
        self._commit_waiters = CommitWaiters()
        self._producers = CommitWaiters()
        """Waiting producers with acks=all. They fail if fewer replicas than min.insync.replicas are in sync."""
        self._flush_waiters, self._start_waiters = CommitWaiters(), CommitWaiters()
        self._unwritten_bytes = 0

    @property
    def removable_offset(self) -> Offset:
        """Offset below which records may be removed: they are committed, and archived if the topic requires that."""
        high_watermark = self.log.high_watermark
        return high_watermark if self.archived_offset is None else min(high_watermark, self.archived_offset)

    @property
    def keyed(self) -> KeyedLog | None:
        """Index by key; None if the topic has no `index.by.key`."""
        return self._admission.keyed

    @property
    def delayed(self) -> DelayedLog | None:
        """Delayed messages; None if the topic has no `delivery.delay`, or while this broker does not lead."""
        return self._admission.delayed

    # --- roles

    def become_leader(self, leader_epoch: LeaderEpoch, in_sync: InSync) -> None:
        """Become the leader in a new leader epoch, which starts at the log end offset."""
        self.log.assign_epoch(leader_epoch)
        self._admission.on_lead()
        self._on_committed_epoch(leader_epoch)
        self._stop_delays()
        self.on_in_sync_change(self.partition.lead(leader_epoch, in_sync))
        if self.log.config.delivery_delay:
            context = self._context
            self._admission.delayed = DelayedLog(
                self, context.threads, context.scan_slots.clock, context.delay_counts
            )
            self._admission.delayed.start()
        if self.partition.waits_for_store:
            self._context.on_in_sync_due()

    def become_follower(self, leader_epoch: LeaderEpoch) -> None:
        """Become a follower in a leader epoch in which another broker leads, or no broker."""
        self.stop_leading()
        self.partition.follow(leader_epoch)
        self.data_waiters.wake()

    def stop_leading(self) -> None:
        """Stop leading in the present leader epoch, and fail every waiting request with NOT_LEADER_OR_FOLLOWER."""
        if self.partition.is_leader:
            self.partition.follow(self.partition.leader_epoch)
            self._stop_delays()
            self.fail_held_appends()
            self._fail_commits(self._not_leader())
            self._start_waiters.fail(self._not_leader())
            if self.keyed is not None:
                self.keyed.fail(self._not_leader())
            self.data_waiters.wake()
            self._tell_listeners()

    def _stop_delays(self) -> None:
        delayed, self._admission.delayed = self._admission.delayed, None
        if delayed is not None:
            delayed.stop()

    def retire(self) -> None:
        """Fail every waiting request: the partition is no longer on this broker."""
        self.stop_leading()
        self._flush_waiters.fail(self._not_leader())
        self.data_waiters.wake()

    def configure(self, config: LogConfig, durability: Durability, min_insync_replicas: int) -> None:
        """Apply the topic's settings, at the start or when they change."""
        self.log.config = config
        self.min_insync_replicas = min_insync_replicas
        self._admission.configure(config)
        if config.index_by_key or config.delivery_delay:
            self._needs_upkeep()
        if self.partition.is_leader:
            self.partition.in_sync.set_min_in_sync(min_insync_replicas)
            self.on_in_sync_change(self.partition.on_in_sync())
            if self.partition.waits_for_store:
                self._context.on_in_sync_due()
        self.on_in_sync_change(self.partition.set_durability(durability))

    # --- in-sync replicas

    @property
    def refuses_acks_all(self) -> bool:
        """True if produce requests with acks=all are refused, because the recorded in-sync set is too small."""
        return self.min_insync_replicas > 1 and (
            not self.partition.is_leader or len(self.partition.in_sync.recorded) < self.min_insync_replicas
        )

    @property
    def is_under_min_insync(self) -> bool:
        """True if fewer replicas are in sync than min.insync.replicas, for records of coordinators and markers.

        As in Kafka, a minimum above the number of replicas is lowered to that number, because it could never be met."""
        if self.min_insync_replicas <= 1 or not self.partition.is_leader:
            return False
        in_sync = self.partition.in_sync
        return len(in_sync.recorded) < min(self.min_insync_replicas, len(in_sync.followers) + 1)

    @property
    def is_only_replica(self) -> bool:
        """True if this broker leads a partition with one replica, apart from replicas that a reassignment adds."""
        return self.partition.is_leader and len(self.partition.in_sync.followers) <= self.adding_replicas

    @property
    def is_in_doubt(self) -> bool:
        """True if this leader cannot know that it still leads, because it is alone in sync and a write to the store has
        an unknown outcome.
        """
        return self.partition.is_leader and self.partition.in_sync.is_in_doubt

    def on_in_sync_change(self, has_moved: bool) -> None:
        """Serve waiting requests after the in-sync set changed; `has_moved` is true if the high watermark moved."""
        if has_moved:
            self._on_high_watermark()
        if self._start_waiters:
            self._tell_starts()
        if self._producers and self.partition.is_held and self.refuses_acks_all:
            self._producers.fail(not_enough_replicas_after_append())
        if self.partition.needs_flush:
            self._context.flusher.request(self)

    def on_follower_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        now_ms: int,
        log_start: Offset,
    ) -> None:
        """Record that a follower has the same records below `offset`, and that its log start offset is `log_start`."""
        partition = self.partition
        if partition.on_follower_fetch(replica, broker_epoch, offset, flushed, now_ms, log_start):
            self._on_high_watermark()
        if self._start_waiters:
            self._tell_starts()
        if partition.waits_for_store or partition.in_sync.may_join(replica, self.log.high_watermark):
            self._context.on_in_sync_due()

    # --- appending

    def append_as_leader(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, keeps_time: bool = False
    ) -> AppendInfo:
        """Append one checked batch; BrokerError if it is refused, and then nothing has changed. With `keeps_time` the
        batch keeps its timestamps, see `Log.append`.
        """
        partition, log, context, admission = self.partition, self.log, self._context, self._admission
        if self.phase or not partition.is_leader:
            self._check_phase(is_marker=header.is_control)
        refused = context.refused.runs
        kind = header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
        if kind == TRANSACTIONAL_FLAG:
            admission.verified.check(header)
            self._end_superseded(header, now_ms)
        if header.producer_id >= 0 and (refused or header.base_sequence > 0):
            self._check_unknown_producer(header)
        try:
            info = log.append(batch, header, partition.leader_epoch, now_ms, keeps_time=keeps_time)
        except BrokerError as error:
            if log.failed:
                self._fail_commits(self._log_failed())  # a failed log is not flushed any more
            if error.code is ErrorCode.out_of_order_sequence_number:
                admission.check_gap(header, partition.in_sync.epoch_start)
            raise
        if refused:
            admission.on_append(header)
        if kind == TRANSACTIONAL_FLAG:
            admission.verified.on_append(header.producer_id)
        context.changed[self] = None
        if partition.advance():
            self._on_high_watermark()
        if partition.needs_flush:
            context.flusher.request(self)
        else:
            self._write_back(len(batch))
        if partition.waits_for_store:
            context.on_in_sync_due()
        if self.listeners:
            self._tell_listeners()
        return info

    def _check_unknown_producer(self, header: BatchHeader) -> None:
        """Refuse a batch of a producer that the log does not know, if an earlier batch of it may still arrive."""
        if self.log.producers.get(header.producer_id) is None:
            self._admission.check_refused(header)
            if self.partition.leader_epoch > 0:
                self._admission.check_overtaking(header, self.partition.in_sync.epoch_start)

    def _end_superseded(self, header: BatchHeader, now_ms: int) -> None:
        """Abort the open transaction of an earlier epoch of the producer, which its coordinator forgot in a power loss.

        Otherwise the next commit marker of the producer would commit it.
        """
        superseded = self.log.producers.superseded(header)
        if superseded is not None:
            self.append_marker(superseded, is_epoch_new=False, now_ms=now_ms)

    def set_phase(self, phase: PartitionPhase) -> None:
        self.phase = phase
        self.notes_writers = bool(phase)
        if phase < PartitionPhase.SEALED:
            self.is_ending = False

    def append_delivery(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, keeps_time: bool = False
    ) -> AppendInfo:
        """Append due messages as `append_as_leader` does. A partition that is being sealed accepts them too."""
        self._delivers = True
        try:
            return self.append_as_leader(batch, header, now_ms, keeps_time=keeps_time)
        finally:
            self._delivers = False

    def _check_phase(self, *, is_marker: bool) -> None:
        """Raise an error if this replica does not lead, or the phase of the partition does not allow the append.

        Markers are accepted in all phases, unless `is_ending`. Deliveries of delayed messages are accepted while the
        partition is being sealed.
        """
        if self.is_ending or not self.partition.is_leader:
            raise self._not_leader()
        is_awaited = self._delivers and self.phase is PartitionPhase.SEALING
        if not (is_marker or is_awaited or self.phase.takes_records):
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"{self.name} refuses records, because it is being removed; refresh the metadata",
            )

    def fail_held_appends(self) -> None:
        """Refuse all held batches; called before the log is closed or deleted."""
        self._admission.fail(self._not_leader())

    def _write_back(self, appended_bytes: int) -> None:
        """Start writeback after every `_WRITEBACK_BYTES`, because the kernel stalls a writer with many dirty pages."""
        self._unwritten_bytes += appended_bytes
        if self._unwritten_bytes >= _WRITEBACK_BYTES:
            work = self.log.jobs.begin_writeback(self._unwritten_bytes)
            self._unwritten_bytes = 0
            if work is not None:
                self._context.threads.run("flush", work)

    # --- transaction markers

    def append_marker(self, marker: Marker, *, is_epoch_new: bool, now_ms: int) -> AppendInfo:
        """Append a transaction marker; BrokerError as in `append_as_leader`.

        A marker that is in the log already is not written again. The returned append then has the last offset of the
        log, so that the caller waits for the commit of the marker.
        """
        if not self.partition.is_leader:
            raise self._not_leader()
        is_due = self.log.producers.check_marker(marker, is_epoch_new=is_epoch_new)
        if not is_due or self._is_uncommitted(marker):
            self._admission.on_transaction_end(marker, is_epoch_new=is_epoch_new)
            last_offset = Offset(self.log.log_end_offset - 1)
            return AppendInfo(last_offset, last_offset, -1, self.log.log_start_offset, duplicate=True)
        batch = memoryview(build_marker(*marker, now_ms))
        info = self.append_as_leader(batch, read_header(batch), now_ms)
        self._admission.on_transaction_end(marker, is_epoch_new=is_epoch_new)
        if self.on_marker is not None:
            self.on_marker(marker, info)
        return info

    def _is_uncommitted(self, marker: Marker) -> bool:
        """True if the marker is in the log but not committed. Its coordinator waits for the commit."""
        entry = self.log.producers.get(marker.producer_id)
        return (
            entry is not None
            and entry.transaction_start < 0
            and (entry.epoch, entry.coordinator_epoch) == (marker.producer_epoch, marker.coordinator_epoch)
            and entry.marker_offset >= self.log.high_watermark
        )

    # --- following

    def append_as_follower(self, records: memoryview, now_ms: int) -> None:
        """Append batches fetched from the leader at this log's end; BrokerError as in `append_as_leader`."""
        self.log.append_as_follower(records, self.partition.leader_epoch, now_ms)
        self._context.changed[self] = None
        if self.flushes_as_follower:
            self._context.flusher.request(self)
        else:
            self._write_back(len(records))

    def on_leader_offsets(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Apply the high watermark and the log start offset of a Fetch response of the leader."""
        self._on_committed_epoch(self.partition.leader_epoch)
        if self.partition.on_leader_high_watermark(high_watermark):
            self.data_waiters.wake()
        if log_start_offset > self.log.log_start_offset:
            self.log.advance_log_start(min(log_start_offset, self.log.log_end_offset))

    def _on_committed_epoch(self, epoch: LeaderEpoch) -> None:
        """Request a checkpoint when the log first agrees with a leader that was elected uncleanly, or a later one.

        After a restart `refuses_truncation` needs this epoch, and the log may have no record of it.
        """
        if self.log.committed_epoch < self.unclean_epoch <= epoch:
            self._context.changed[self] = None

    def refuses_truncation(self, offset: Offset) -> bool:
        """True if a truncation to `offset` would remove committed records that no unclean election has lost."""
        partition = self.partition
        return gives_up_committed(
            offset,
            self.log.high_watermark,
            self.log.committed_epoch,
            self.unclean_epoch,
            partition.durability,
        )

    def on_truncated(self) -> None:
        """Continue after a truncation: call back requests whose records are durable or were removed."""
        self.truncating = None
        self._context.changed[self] = None
        self._flush_waiters.truncate(self.log.log_end_offset)
        self._flush_waiters.committed(self.log.flushed_offset)
        if self._flush_waiters:
            self._context.flusher.request(self)

    def check_leader_epoch(self, asked: int) -> None:
        """Refuse a client whose metadata has another leader epoch, `asked` (KIP-320); -1 skips the check."""
        if asked < 0 or asked == self.partition.leader_epoch:
            return
        if asked < self.partition.leader_epoch:
            raise BrokerError(ErrorCode.fenced_leader_epoch)
        raise BrokerError(ErrorCode.unknown_leader_epoch)

    def diverging_epoch(self, fetched_epoch: int, offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Epoch and end offset at which a fetcher's log diverges from this log (KIP-595); None if it does not.

        `fetched_epoch` is the epoch of the fetcher's last record; -1 skips the check.
        """
        return diverging_epoch(
            self.log.leader_epochs, self.log.log_end_offset, LeaderEpoch(fetched_epoch), Offset(offset)
        )

    def on_unreadable(self, offset: Offset) -> None:
        """Request a scrub of the segment of an unreadable offset, unless the damage is recorded in the log."""
        if not any(offset in damaged for damaged in self.log.damage):
            self.suspects.add(offset)
            self._needs_upkeep()

    def _needs_upkeep(self) -> None:
        self._context.upkeep[self] = None

    # --- waiting

    def when_acknowledged(self, info: AppendInfo, acks: int, callback: CommitCallback) -> bool:
        """True if a produced batch can be acknowledged now. If False, `callback` is called later, with the error if the
        batch failed.

        acks=all waits for the high watermark, and fails if fewer replicas than min.insync.replicas are in sync: then
        the producer sends the batch again. acks=1 waits for the high watermark only if the partition has a single
        replica (apart from replicas that a reassignment adds), so that the producer can read its own write.
        """
        waiters = self.acknowledging(info, acks)
        if waiters is None:
            return True
        waiters.add(Offset(info.last_offset + 1), callback)
        return False

    def acknowledging(self, info: AppendInfo, acks: int) -> CommitWaiters | None:
        """Waiters to which a produced batch has to be added; None if it can be acknowledged now. See
        `when_acknowledged`.
        """
        if acks == ACKS_ALL:
            if self._waits_for_commit(info):
                return self._producers
            if self.refuses_acks_all:
                raise not_enough_replicas_after_append()
        elif acks == ACKS_LEADER and self.is_only_replica and self._waits_for_commit(info):
            return self._commit_waiters
        return None

    def when_committed(self, info: AppendInfo, callback: CommitCallback) -> bool:
        """True if the append is committed. If False, `callback` is called later, with the error if it cannot be."""
        if not self._waits_for_commit(info):
            return True
        self._commit_waiters.add(Offset(info.last_offset + 1), callback)
        return False

    def _waits_for_commit(self, info: AppendInfo) -> bool:
        """True if an append is not committed yet; BrokerError if it cannot be, because the log has failed."""
        log = self.log
        if log.high_watermark > info.last_offset:
            return False
        if log.failure is not None:
            raise self._log_failed()
        return True

    async def flushed(self) -> None:
        """Wait until all records in the log are durable; BrokerError if a flush failed."""
        done, settle = settled_by()
        if not self.when_flushed(settle):
            await done

    def when_flushed(self, callback: CommitCallback) -> bool:
        """True if all records in the log are durable. If False, `callback` is called later, with the error if a flush
        failed.
        """
        required = self.log.log_end_offset
        if self.log.flushed_offset >= required:
            return True
        self._flush_waiters.add(required, callback)
        self._context.flusher.request(self)
        return False

    async def log_start_replicated(self) -> None:
        """Wait until all in-sync replicas have this log start offset; BrokerError if this broker stops leading."""
        done, settle = settled_by()
        self._start_waiters.add(self.log.log_start_offset, settle)
        self._tell_starts()
        await done

    def _tell_starts(self) -> None:
        if self.partition.is_leader:
            self._start_waiters.committed(self.partition.in_sync.low_watermark(self.log.log_start_offset))
        else:
            self._start_waiters.fail(self._not_leader())

    def on_flushed(self, job: FlushJob) -> None:
        if self.truncating is not None:
            return  # the result of a flush that began before a truncation is invalid
        self.log.jobs.finish_flush(job)
        self._flush_waiters.committed(self.log.flushed_offset)
        if self.partition.advance():
            self._on_high_watermark()

    def on_flush_failed(self, error: OSError) -> None:
        self.log.fail(error)
        self._fail_commits(self._log_failed())
        self._flush_waiters.fail(self._log_failed())

    def on_checkpoint_failed(self) -> None:
        """Fail waiting requests if the failed checkpoint was final for the log; it is not if the disk was only full."""
        if self.log.failed:
            self._fail_commits(self._log_failed())

    def _on_high_watermark(self) -> None:
        high_watermark = self.log.high_watermark
        if self._commit_waiters.waiting:
            self._commit_waiters.committed(high_watermark)
        if self._producers.waiting:
            error = not_enough_replicas_after_append() if self.refuses_acks_all else None
            self._producers.committed(high_watermark, error)
        if self.data_waiters.waiting:
            self.data_waiters.wake()
        keyed = self._admission.keyed
        if keyed is not None:
            keyed.on_high_watermark()
        delayed = self._admission.delayed
        if delayed is not None:
            delayed.on_high_watermark()

    def _fail_commits(self, error: BrokerError) -> None:
        self._commit_waiters.fail(error)
        self._producers.fail(error)

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener.on_replica_change(self)

    def _not_leader(self) -> BrokerError:
        return BrokerError(ErrorCode.not_leader_or_follower, f"this broker does not lead {self.name}")

    def _log_failed(self) -> BrokerError:
        return BrokerError(
            ErrorCode.kafka_storage_error,
            f"the log of {self.name} failed; it is recovered when the broker restarts",
        )
