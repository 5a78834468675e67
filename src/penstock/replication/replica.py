"""This broker's copy of a partition: its log, what may be shown of it, and those who wait for it to move.

Loop thread only. A leader appends what producers send, a follower what its leader has; whoever waits for a leader is
told when it is none any more. Appends keep their order: while one waits for its records to be looked at in a pool, or
for the coordinator of its transaction, later ones queue behind it, so that a producer's next batch never overtakes one
that is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.config import Durability
from penstock.errors import BrokerError, ErrorCode
from penstock.model import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, read_header
from penstock.records.control import Marker, build_marker
from penstock.replication.flusher import Flusher
from penstock.replication.held_appends import AppendCallback, HeldAppend, HeldAppends
from penstock.replication.in_sync import InSync
from penstock.replication.keyed_log import KeyedLog
from penstock.replication.partition import ReplicatedPartition
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.truncation import diverging_epoch, gives_up_committed
from penstock.replication.verified_appends import VerifiedAppends, Verify
from penstock.replication.waiting import CommitCallback, CommitWaiters, DataWaiters, settled_by
from penstock.storage.jobs import FlushJob
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.threads import Threads

_WRITEBACK_BYTES = 8 << 20


class Watcher(Protocol):
    """Whoever is told of every move of a replica's log: a follower's fetches."""

    def on_moved(self, replica: Replica) -> None: ...


class Replica:
    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: Log,
        partition: ReplicatedPartition,
        flusher: Flusher,
        threads: Threads,
        changed: dict[Replica, None],
        refused: RefusedBatches,
        on_in_sync_due: Callable[[], None],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.partition = partition
        self.partition_epoch = -1
        """Of the state in the store that its role is by."""
        self.unclean_epoch = NO_LEADER_EPOCH
        """Leader epoch of the last election that may have given up committed records."""
        self.min_insync_replicas = 1
        self.max_message_bytes = log.config.max_message_bytes
        self.data_waiters = DataWaiters()
        self._on_in_sync_due = on_in_sync_due
        self.watchers: dict[Watcher, None] = {}
        self.flushes_as_follower = False
        """Whether its leader counts what it has fsynced."""
        self.is_throttled_as_leader = False
        self.is_throttled_as_follower = False
        self.archived_offset: Offset | None = None
        """Nothing from here on may be removed; None where nobody has to archive it."""
        self.may_refetch = False
        """Whether the log was damaged when the broker started, and every Fetch since has told its leader so: then the
        leader has not let this replica into the in-sync set, and its records are no one's only copy."""
        self.cutting: asyncio.Future[None] | None = None
        """Set while the end of the log is cut: no role is taken before that is done."""
        self._commit_waiters = CommitWaiters()
        self._producers = CommitWaiters()
        """Producers with acks=all: they wait no longer when fewer than min.insync.replicas are in sync."""
        self._flush_waiters = CommitWaiters()
        self._start_waiters = CommitWaiters()
        self._flusher = flusher
        self._threads = threads
        self._changed = changed
        self._unwritten_bytes = 0
        self._held = HeldAppends(log, threads, self.append)
        self.keyed: KeyedLog | None = None
        """Where the topic has `index.by.key`."""
        self._refused = refused
        self._refused_as = (name.topic, name.partition), (topic_id, name.partition)
        """The names under which batches of this partition may have been refused."""
        self.verified = VerifiedAppends(log, self._on_unverified)
        self.on_marker: Callable[[Marker, AppendInfo], None] | None = None
        """Told of every marker that is appended here."""

    @property
    def removable_offset(self) -> Offset:
        """Records before it may be removed: they are committed, and archived where that is required."""
        high_watermark = self.log.high_watermark
        return high_watermark if self.archived_offset is None else min(high_watermark, self.archived_offset)

    @property
    def must_hold(self) -> bool:
        """Whether an append has to go through `append_later`."""
        return self._held.must_hold

    def become_leader(self, leader_epoch: LeaderEpoch, in_sync: InSync) -> None:
        """Lead in a new epoch, which starts at the present end of the log."""
        self.log.assign_epoch(leader_epoch)
        self.on_moved(self.partition.lead(leader_epoch, in_sync))
        if self.partition.waits_for_store:
            self._on_in_sync_due()

    def become_follower(self, leader_epoch: LeaderEpoch) -> None:
        """Another leads in this epoch, or nobody."""
        self.stop_leading()
        self.partition.follow(leader_epoch)
        self.data_waiters.wake()

    def stop_leading(self) -> None:
        """At once, for what remains of this epoch: whoever waits is told to look for the leader elsewhere."""
        if self.partition.is_leader:
            self.partition.follow(self.partition.leader_epoch)
            self.give_up_held()
            self._fail_commits(self._departure())
            self._start_waiters.fail(self._departure())
            if self.keyed is not None:
                self.keyed.fail(self._departure())
            self.data_waiters.wake()
            self._tell_watchers()

    @property
    def lacks_replicas(self) -> bool:
        """Whether fewer are in sync, as recorded, than a producer with acks=all asks for."""
        return self.min_insync_replicas > 1 and (
            not self.partition.is_leader or len(self.partition.in_sync.recorded) < self.min_insync_replicas
        )

    @property
    def is_under_min_insync(self) -> bool:
        """Whether fewer replicas are in sync than min.insync.replicas, for records of coordinators and markers.

        A minimum above the number of replicas counts as that number, as in Kafka: it could never be met."""
        if self.min_insync_replicas <= 1 or not self.partition.is_leader:
            return False
        in_sync = self.partition.in_sync
        return len(in_sync.recorded) < min(self.min_insync_replicas, len(in_sync.followers) + 1)

    @property
    def is_only_replica(self) -> bool:
        """Whether this broker leads the partition and no other broker has, or is to have, a replica of it."""
        return self.partition.is_leader and not self.partition.in_sync.followers

    @property
    def is_in_doubt(self) -> bool:
        """Whether this broker can neither change who is in sync nor know that it still leads."""
        return self.partition.is_leader and self.partition.in_sync.is_in_doubt

    def on_moved(self, has_moved: bool) -> None:
        """Something about who is in sync has changed, and perhaps with it the high watermark."""
        if has_moved:
            self._on_high_watermark()
        if self._start_waiters:
            self._tell_starts()
        if self._producers and self.partition.is_held and self.lacks_replicas:
            self._producers.fail(_too_few_after_append())
        if self.partition.needs_flush:
            self._flusher.request(self)

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendInfo:
        """Append one checked batch; BrokerError when it is refused, and then nothing has changed."""
        if not self.partition.is_leader:
            raise self._departure()
        kind = header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
        if kind == TRANSACTIONAL_FLAG:
            self.verified.check(header)
            superseded = self.log.producers.superseded(header)
            if superseded is not None:
                # Its coordinator has lost it with a power loss: what commits the next one must not commit this one too.
                self.append_marker(superseded, is_epoch_new=False, now_ms=now_ms)
        if self._refused and header.producer_id >= 0 and self.log.producers.get(header.producer_id) is None:
            self._check_refused(header)
        try:
            info = self.log.append(batch, header, self.partition.leader_epoch, now_ms)
        except BrokerError as error:
            if self.log.failed:
                self._fail_commits(self._failure())  # there will be no flush that they could wait for
            if error.code is ErrorCode.out_of_order_sequence_number:
                self._check_refused(header)
            raise
        if self._refused:
            self._refused.on_append(header, *self._refused_as)
        if kind == TRANSACTIONAL_FLAG:
            self.verified.on_append(header.producer_id)
        self._changed[self] = None
        if self.partition.advance():
            self._on_high_watermark()
        if self.partition.needs_flush:
            self._flusher.request(self)
        else:
            self._write_back(len(batch))
        if self.partition.waits_for_store:
            self._on_in_sync_due()
        if self.watchers:
            self._tell_watchers()
        return info

    def _check_refused(self, header: BatchHeader) -> None:
        """Refuse a batch that came only because an earlier one of its producer was refused, with that one's error."""
        cause = self._refused.cause(header, *self._refused_as)
        if cause is not None:
            raise cause

    def _on_unverified(self, header: BatchHeader, code: ErrorCode) -> None:
        """The coordinator of its transaction did not confirm a batch."""
        self._refused.remember(self._refused_as[0], header, code)

    def append_marker(self, marker: Marker, *, is_epoch_new: bool, now_ms: int) -> AppendInfo:
        """End a transaction; as `append`. One that was written before is written no second time, and then what is
        waited for is everything there is."""
        if not self.partition.is_leader:
            raise self._departure()
        is_due = self.log.producers.check_marker(marker, is_epoch_new=is_epoch_new)
        if not is_due or self._is_on_its_way(marker):
            self._on_end(marker, is_epoch_new=is_epoch_new)
            last_offset = Offset(self.log.log_end_offset - 1)
            return AppendInfo(last_offset, last_offset, -1, self.log.log_start_offset, duplicate=True)
        batch = memoryview(build_marker(*marker, now_ms))
        info = self.append(batch, read_header(batch), now_ms)
        self._on_end(marker, is_epoch_new=is_epoch_new)
        if self.on_marker is not None:
            self.on_marker(marker, info)
        return info

    def _on_end(self, marker: Marker, *, is_epoch_new: bool) -> None:
        """The producer's transactions up to the marker's epoch have ended; below it, where the marker has the epoch of
        the next one."""
        ended_below = marker.producer_epoch if is_epoch_new else marker.producer_epoch + 1
        self._refused.on_epoch_end(marker.producer_id, ended_below, *self._refused_as)
        self.verified.on_marker(marker, ended_below)

    def _is_on_its_way(self, marker: Marker) -> bool:
        """Whether it is written and not committed yet: until then its coordinator lets no other transaction begin."""
        entry = self.log.producers.get(marker.producer_id)
        return (
            entry is not None
            and entry.transaction_start < 0
            and (entry.epoch, entry.coordinator_epoch) == (marker.producer_epoch, marker.coordinator_epoch)
            and entry.marker_offset >= self.log.high_watermark
        )

    def _tell_watchers(self) -> None:
        for watcher in tuple(self.watchers):
            watcher.on_moved(self)

    # --- following

    def append_fetched(self, records: memoryview, now_ms: int) -> None:
        """Append what the leader has from the end of this log on; as `append`."""
        self.log.append_as_follower(records, self.partition.leader_epoch, now_ms)
        self._changed[self] = None
        if self.flushes_as_follower:
            self._flusher.request(self)
        else:
            self._write_back(len(records))

    def on_heard(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """What the leader says of itself."""
        if self.partition.on_leader_high_watermark(high_watermark):
            self.data_waiters.wake()
        if log_start_offset > self.log.log_start_offset:
            self.log.advance_log_start(min(log_start_offset, self.log.log_end_offset))

    def must_keep(self, offset: Offset) -> bool:
        """Whether a follower may not truncate its log to `offset`: committed records would go that no election has
        given up."""
        partition = self.partition
        return gives_up_committed(
            offset,
            self.log.high_watermark,
            partition.committed_epoch,
            self.unclean_epoch,
            partition.durability,
        )

    def on_cut(self) -> None:
        """The end of the log was cut, or all of it went."""
        self.cutting = None
        self._changed[self] = None
        self._flush_waiters.cut(self.log.log_end_offset)
        self._flush_waiters.committed(self.log.flushed_offset)
        if self._flush_waiters:
            self._flusher.request(self)

    async def flushed(self) -> None:
        """Wait until everything that is in the log now is durable; BrokerError when it will not be."""
        done, settle = settled_by()
        if not self.when_flushed(settle):
            await done

    def when_flushed(self, callback: CommitCallback) -> bool:
        """True when everything that is in the log now is durable; else calls back when it is, or will not be."""
        required = self.log.log_end_offset
        if self.log.flushed_offset >= required:
            return True
        self._flush_waiters.add(required, callback)
        self._flusher.request(self)
        return False

    # --- appends that are held

    def _write_back(self, appended_bytes: int) -> None:
        """Nobody waits for the disk; but the system stalls who lets dirty pages pile up."""
        self._unwritten_bytes += appended_bytes
        if self._unwritten_bytes >= _WRITEBACK_BYTES:
            work = self.log.begin_writeback(self._unwritten_bytes)
            self._unwritten_bytes = 0
            if work is not None:
                self._threads.run("flush", work)

    def append_verified(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        verify: Verify,
        callback: AppendCallback,
    ) -> None:
        """Append after the coordinator was asked whether the partition is in the batch's transaction."""
        held = HeldAppend(batch, header, now_ms, callback)
        self.verified.hold(header, verify, partial(self._on_verified, held), callback)

    def _on_verified(self, held: HeldAppend) -> None:
        if self.must_hold:
            self._held.hold(held)
            return
        result: AppendInfo | BrokerError = BrokerError(
            ErrorCode.kafka_storage_error, "the batch could not be appended"
        )
        try:
            result = self.append(held.batch, held.header, held.now_ms)
        except BrokerError as error:
            result = error
        finally:
            held.callback(result)  # whatever went wrong, its producer is told

    def must_check(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether the batch may have been stored before, which only its idempotency key can tell."""
        return self.keyed is not None and self.keyed.must_check(batch, header)

    def append_later(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        callback: AppendCallback,
        *,
        may_be_stored: bool = False,
    ) -> None:
        """Append after the batch's records were looked at off the loop, in the order of the calls."""
        self._held.hold(HeldAppend(batch, header, now_ms, callback, may_be_stored))

    def give_up_held(self) -> None:
        """The log is about to be closed or to go: append nothing more of what is still being looked at."""
        self._held.give_up(self._departure())
        self.verified.give_up(self._departure())

    def check_leader_epoch(self, asked: int) -> None:
        """Refuse a client whose metadata is of another leadership (KIP-320); -1 does not ask."""
        if asked < 0 or asked == self.partition.leader_epoch:
            return
        if asked < self.partition.leader_epoch:
            raise BrokerError(ErrorCode.fenced_leader_epoch)
        raise BrokerError(ErrorCode.unknown_leader_epoch)

    def diverging_epoch(self, fetched_epoch: int, offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Where a fetcher's history left ours, if it did (KIP-595); -1 does not ask."""
        return diverging_epoch(
            self.log.leader_epochs, self.log.log_end_offset, LeaderEpoch(fetched_epoch), Offset(offset)
        )

    def when_committed(
        self, info: AppendInfo, callback: CommitCallback, *, for_producer: bool = False
    ) -> bool:
        """True when the append is committed already; else calls back when it is, or cannot be.

        A producer is also called back when fewer replicas than min.insync.replicas are in sync: then nothing is
        committed for now, and the producer sends the batch again.
        """
        required = Offset(info.last_offset + 1)
        if self.log.high_watermark >= required:
            return True
        if self.log.failed:
            raise self._failure()
        (self._producers if for_producer else self._commit_waiters).add(required, callback)
        return False

    def _fail_commits(self, error: BrokerError) -> None:
        self._commit_waiters.fail(error)
        self._producers.fail(error)

    def configure(self, config: LogConfig, durability: Durability, min_insync_replicas: int) -> None:
        """Take the topic's settings, at the start or when they change."""
        self.log.config = config
        self.min_insync_replicas = min_insync_replicas
        self.max_message_bytes = config.max_message_bytes
        self._held.checks_records = config.checks_records
        if not config.index_by_key and self.keyed is not None:
            self.keyed.fail(BrokerError(ErrorCode.invalid_request, f"{self.name} has no index.by.key"))
            self.keyed = None
        elif config.index_by_key and self.keyed is None:
            self.keyed = KeyedLog(self.log, self._threads)
        self._held.keyed = self.keyed
        if self.partition.is_leader:
            self.partition.in_sync.set_min_in_sync(min_insync_replicas)
            self.on_moved(self.partition.on_in_sync())
            if self.partition.waits_for_store:
                self._on_in_sync_due()
        self.on_moved(self.partition.set_durability(durability))

    def on_flushed(self, job: FlushJob) -> None:
        if self.cutting is not None:
            return  # it was begun before the cut, and counts no more
        self.log.finish_flush(job)
        self._flush_waiters.committed(self.log.flushed_offset)
        if self.partition.advance():
            self._on_high_watermark()

    def on_flush_failed(self, error: OSError) -> None:
        self.log.fail(error)
        self._fail_commits(self._failure())
        self._flush_waiters.fail(self._failure())

    def on_checkpoint_failed(self) -> None:
        """Perhaps only for lack of space; but a log that failed with it commits nothing more."""
        if self.log.failed:
            self._fail_commits(self._failure())

    def retire(self) -> None:
        """The partition is no longer here: whoever waits is told to look for it elsewhere."""
        self.stop_leading()
        self._flush_waiters.fail(self._departure())
        self.data_waiters.wake()

    def on_follower_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        now_ms: int,
        log_start: Offset,
    ) -> None:
        """A follower has everything below `offset` as we have it, and nothing below `log_start`."""
        partition = self.partition
        if partition.on_follower_fetch(replica, broker_epoch, offset, flushed, now_ms, log_start):
            self._on_high_watermark()
        if self._start_waiters:
            self._tell_starts()
        if partition.waits_for_store or partition.in_sync.may_join(replica, self.log.high_watermark):
            self._on_in_sync_due()

    async def started_everywhere(self) -> None:
        """Wait until no copy in sync serves anything below the log's start; BrokerError when that is not to be."""
        done, settle = settled_by()
        self._start_waiters.add(self.log.log_start_offset, settle)
        self._tell_starts()
        await done

    def _tell_starts(self) -> None:
        if self.partition.is_leader:
            self._start_waiters.committed(self.partition.in_sync.low_watermark(self.log.log_start_offset))
        else:
            self._start_waiters.fail(self._departure())

    def _on_high_watermark(self) -> None:
        high_watermark = self.log.high_watermark
        self._commit_waiters.committed(high_watermark)
        self._producers.committed(high_watermark)
        self.data_waiters.wake()
        if self.keyed is not None:
            self.keyed.on_moved()

    def _departure(self) -> BrokerError:
        return BrokerError(ErrorCode.not_leader_or_follower, f"this broker does not lead {self.name}")

    def _failure(self) -> BrokerError:
        return BrokerError(
            ErrorCode.kafka_storage_error,
            f"the log of {self.name} failed; it is recovered when the broker restarts",
        )


def _too_few_after_append() -> BrokerError:
    return BrokerError(
        ErrorCode.not_enough_replicas_after_append,
        "stored, but fewer replicas are in sync than min.insync.replicas",
    )
