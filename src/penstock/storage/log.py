"""One partition's log: batches appended at the end, read from anywhere, durable up to the flushed offset.

The loop thread appends and changes state; a job's `work` runs in a pool and touches only what it was given;
`read`, `find_timestamp` and `max_timestamp` may run in a pool too. That needs no locks: the tuple of segments
is replaced and never changed, and what a reader looks at first is changed last. An offset is visible only
after its bytes are in the file, and counts as flushed only after they and the file's name were synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.config.topic_options import MessageTimestampType
from penstock.errors import BrokerError, CorruptLog, ErrorCode, StorageError
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, assign, stamp_append_time
from penstock.storage.checkpoints import LogCheckpoint, RecoveryMark
from penstock.storage.jobs import CheckpointJob, DeleteJob, FlushJob, IndexWrite
from penstock.storage.log_config import LogConfig
from penstock.storage.log_slice import EMPTY_SLICE, LogSlice
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.producer_state import AppendedBatch, ProducerStates
from penstock.storage.reading import Boundaries, floor_segment, read_slice
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList
from penstock.storage.snapshot import KEPT_SNAPSHOTS, Snapshot, snapshot_name
from penstock.storage.time_lookup import TimestampOffset, find_newest, find_timestamp
from penstock.storage.walking import MAX_RELATIVE_OFFSET

_PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class AppendInfo(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 where records keep the time their producer gave them."""
    log_start_offset: Offset
    duplicate: bool = False


class Log:
    __slots__ = (
        "_after_max_ms",
        "_append_time",
        "_before_max_ms",
        "_config",
        "_context",
        "_epoch",
        "_failure",
        "_index_interval_bytes",
        "_job",
        "_segment_bytes",
        "_segment_ms",
        "_segments",
        "_snapshots",
        "boundaries",
        "cleaned_offset",
        "directory",
        "flushed_offset",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "mark",
        "producers",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        context: StorageContext,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        state: LogState,
    ) -> None:
        self._context = context
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.flushed_offset = state.log_end_offset
        self.high_watermark = state.high_watermark
        """Kept for the partition's leader, who owns it: it is checkpointed with the log."""
        self.cleaned_offset = state.cleaned_offset
        """Kept for compaction: below it every key was seen once."""
        self.mark = state.mark
        self.leader_epochs = state.epochs
        self._epoch = state.epochs.latest
        self.producers = state.producers or ProducerStates(
            config.max_producers, config.producer_id_expiration_ms
        )
        self._segments = SegmentList(
            context.disk, context.files, directory, state.segments, state.new_directories
        )
        self._snapshots = state.snapshots
        self.boundaries = Boundaries()
        self._failure: OSError | None = None
        self._job: object | None = None
        self.config = config

    @classmethod
    def create(
        cls,
        context: StorageContext,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> Log:
        """A new, empty log. Its directory becomes durable with the first flush."""
        context.disk.make_dir(directory)
        state = LogState(new_directories=(directory.rpartition("/")[0], directory))
        return cls(context, directory, topic_partition, topic_id, config, state)

    # --- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._append_time = config.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.producers.set_limits(config.max_producers, config.producer_id_expiration_ms)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last is written to. A snapshot: it does not change."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def recovery_point(self) -> Offset:
        return self.mark.offset

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def unsynced_bytes(self) -> int:
        return self._segments.unsynced_bytes

    @property
    def unmarked_bytes(self) -> int:
        """What a recovery would have to check."""
        mark = self.mark
        size = sum(segment.size for segment in self.segments if segment.base_offset >= mark.base_offset)
        return size - mark.position

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """OffsetForLeaderEpoch: the largest epoch not above this one and its end; (-1, -1) if unknown."""
        return self.leader_epochs.end_of(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader of this epoch takes over; what it appends starts at the present end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self._epoch = self.leader_epochs.latest

    # --- appending

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendInfo:
        """Append one batch that passed `check_batch`, changing its bytes in place; BrokerError says why not,
        and then nothing has changed."""
        if self._failure is not None or self._context.full:
            raise self._refusal()
        timestamp = header.max_timestamp
        if self._append_time:
            timestamp = now_ms
        elif timestamp > now_ms + self._after_max_ms or now_ms - header.base_timestamp > self._before_max_ms:
            self._check_timestamps(header, now_ms)
        has_producer = header.producer_id >= 0
        if has_producer:
            earlier = self.producers.check(header)
            if earlier is not None:
                return self._duplicate(earlier)
        if self._append_time:
            stamp_append_time(batch, now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        assign(batch, base_offset, leader_epoch)
        segments = self._segments
        segment = segments.active
        position = 0
        try:
            if segment is None or self._must_roll(segment, len(batch), last_offset, now_ms):
                segment = segments.start(base_offset, now_ms, batch)
            else:
                position = segment.size
                (segment.writer or segments.pin(segment)).pwrite(position, (batch,))
        except OSError as error:
            raise self._write_failed(error) from error
        if position - segment.indexed_size >= self._index_interval_bytes:
            segment.index.add(base_offset - segment.base_offset, position, segment.max_timestamp)
            segment.indexed_size = position
        if position == 0:
            segment.created_ms = now_ms
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
        if leader_epoch != self._epoch:
            self.leader_epochs.assign(leader_epoch, base_offset)
            self._epoch = leader_epoch
        if has_producer:
            self.producers.record(header, base_offset, timestamp, now_ms)
        # In this order: whoever reads the size first and finds the end unmoved has a size that goes with it.
        self.log_end_offset = Offset(last_offset + 1)
        segment.size = position + len(batch)
        return AppendInfo(
            base_offset, Offset(last_offset), now_ms if self._append_time else -1, self.log_start_offset
        )

    def _refusal(self) -> BrokerError:
        if self._failure is not None:
            message = f"{self.topic_partition} failed and is recovered at the next start: {self._failure}"
        else:
            message = "free space on the data directory's disk is below the floor (log.dir.min.free.bytes)"
        return BrokerError(ErrorCode.kafka_storage_error, message)

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        if header.max_timestamp > now_ms + self._after_max_ms:
            raise BrokerError(
                ErrorCode.invalid_timestamp,
                f"timestamp {header.max_timestamp} is more than {self._after_max_ms} ms after {now_ms}",
            )
        if header.base_timestamp >= 0:
            raise BrokerError(
                ErrorCode.invalid_timestamp,
                f"timestamp {header.base_timestamp} is more than {self._before_max_ms} ms before {now_ms}",
            )

    def _duplicate(self, earlier: AppendedBatch) -> AppendInfo:
        return AppendInfo(
            Offset(earlier.base_offset),
            Offset(earlier.last_offset),
            earlier.timestamp if self._append_time else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def _must_roll(self, segment: Segment, length: int, last_offset: int, now_ms: int) -> bool:
        size = segment.size
        return (
            size + length > self._segment_bytes
            or now_ms - segment.created_ms >= self._segment_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ) and size > 0

    def _write_failed(self, error: OSError) -> BrokerError:
        """Nothing of the batch may stay behind the end of the log, where a crash would make it one."""
        active = self._segments.active
        if error.errno not in _PASSING_ERRORS:
            self.fail(error)
        elif active is not None:
            try:
                active.file.truncate(active.size)
            except OSError as second:
                self.fail(second)
        return BrokerError(
            ErrorCode.kafka_storage_error, f"{self.topic_partition} could not be written: {error}"
        )

    def fail(self, error: OSError) -> None:
        """The disk let us down: nothing is appended or counted as flushed any more, until the next start."""
        if self._failure is None:
            self._failure = error

    # --- reading

    def read(
        self, offset: Offset, max_bytes: int, *, below: Offset, at_least_one: bool, wait: bool = False
    ) -> LogSlice:
        """Batches from the one that has `offset` on, none at or above `below`; the last may be cut by
        `max_bytes`.

        The first comes whole if it must (`at_least_one`) or fits; else the slice is empty. WouldBlock asks to
        be called again in a pool with `wait`.
        """
        while True:
            # In this order: the segments then have all up to the end, and what the start does not exclude
            # afterwards had not been deleted from them.
            log_end_offset = self.log_end_offset
            segments = self._segments.all
            if not self.log_start_offset <= offset <= log_end_offset:
                raise self._out_of_range(offset)
            limit = min(below, log_end_offset)
            if offset >= limit or (max_bytes <= 0 and not at_least_one):
                return EMPTY_SLICE
            try:
                return read_slice(self, segments, offset, max_bytes, limit, at_least_one, wait)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def find_timestamp(self, timestamp: int, below: Offset) -> TimestampOffset | None:
        """The first record at least as new as `timestamp`. Waits for the disk: for a pool."""
        while True:
            segments = self._segments.all
            try:
                return find_timestamp(segments, timestamp, self.log_start_offset, below)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def max_timestamp(self, below: Offset | None = None) -> TimestampOffset | None:
        """The first of the newest records (ListOffsets -3). Waits for the disk: for a pool."""
        while True:
            segments = self._segments.all
            try:
                end_offset = self.log_end_offset
                below = end_offset if below is None else below
                return find_newest(segments, self.log_start_offset, below, end_offset)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def _check_unchanged(self, segments: tuple[Segment, ...], error: CorruptLog | OSError) -> None:
        """A read in a pool that fails while segments are replaced or cut under it is tried again on the new
        ones."""
        if self._segments.all is segments:
            if isinstance(error, CorruptLog):
                raise error
            raise StorageError(f"{self.topic_partition} could not be read: {error}") from error

    def _out_of_range(self, offset: Offset) -> BrokerError:
        return BrokerError(
            ErrorCode.offset_out_of_range,
            f"{offset} is not in {self.log_start_offset} to {self.log_end_offset} of {self.topic_partition}",
        )

    # --- cutting

    def truncate_to(self, offset: Offset, now_ms: int, keep_mark: Callable[[], None]) -> None:
        """Drop the batch that has `offset` and all after it; waits for the disk.

        `keep_mark` makes the lowered recovery point durable before anything is cut.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if offset == self.log_end_offset:
            return
        assert self._job is None, "a job is under way"
        kept = floor_segment(self.segments, offset) + 1
        segment = self.segments[kept - 1]
        position, header = segment.locate(offset, segment.size, wait=True)
        end_offset = offset if header is None else Offset(header.base_offset)
        if self.mark.offset > end_offset:
            self.mark = RecoveryMark(
                Offset(segment.base_offset), segment.base_offset, created_ms=segment.created_ms
            )
        self.log_start_offset = min(self.log_start_offset, end_offset)
        keep_mark()
        try:
            self._cut(kept, segment, position, end_offset)
        except OSError as error:
            self.fail(error)
            raise StorageError(f"{self.topic_partition} could not be truncated: {error}") from error
        self._rebuild_state(end_offset, now_ms)

    def _cut(self, kept: int, segment: Segment, position: int, end_offset: Offset) -> None:
        dropped = self._segments.drop_last(kept)
        self.boundaries = Boundaries()
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        disk = self._context.disk
        for old in reversed(dropped):  # newest first, so that a crash leaves no hole
            disk.remove(old.index.file.path)
            disk.remove(old.log_file.path)
        segment.cut(position, disk)
        for snapshot in self._snapshots:
            if snapshot > end_offset:
                disk.remove(f"{self.directory}/{snapshot_name(snapshot)}")
        disk.sync_dir(self.directory)
        self._snapshots = tuple(snapshot for snapshot in self._snapshots if snapshot <= end_offset)

    def _rebuild_state(self, end_offset: Offset, now_ms: int) -> None:
        replay = Replay(self._config, now_ms)
        replay.restore(self._context.disk, self.directory, self._snapshots, self.segments, end_offset)
        replay.epochs.truncate_from_start(self.log_start_offset)
        self.leader_epochs, self.producers = replay.epochs, replay.producers
        self._epoch = self.leader_epochs.latest

    def discard(self) -> None:
        """The log is being deleted: give up its files."""
        self.fail(OSError(errno.ENOENT, "the log was deleted"))
        self._segments.forget(self.segments)

    # --- jobs

    def begin_flush(self) -> FlushJob:
        """Everything appended so far, made durable by the job's work; then `finish_flush`, or `fail`."""
        return self._segments.begin_flush(self.log_end_offset)

    def finish_flush(self, job: FlushJob) -> None:
        if self._segments.is_current(job) and not self.failed:
            self._segments.finish_flush(job)
            self.flushed_offset = max(self.flushed_offset, job.end_offset)
            if job.segments:
                self.boundaries.remember(job.end_offset, *job.segments[-1])  # readers are let up to here

    def begin_writeback(self, length: int) -> Callable[[], None] | None:
        """What has the newest `length` bytes go to disk soon; it may take a moment and makes nothing durable."""
        active = self._segments.active
        if active is None or active.writer is None:
            return None
        return partial(active.writer.start_writeback, max(0, active.size - length), length)

    def begin_checkpoint(self) -> CheckpointJob | None:
        """Move the recovery point to the present end; None when it is there, or another job changes files."""
        if self.failed or self._job is not None:
            return None
        index_writes, active = self._segments.index_writes(), self._segments.active
        if active is None or (self.mark.offset == self.log_end_offset and not index_writes):
            return None
        job = self._make_checkpoint(index_writes, active)
        self._job = job
        return job

    def _make_checkpoint(self, index_writes: tuple[IndexWrite, ...], active: Segment) -> CheckpointJob:
        return CheckpointJob(
            self._context.disk,
            self.directory,
            self.begin_flush(),
            index_writes,
            self._snapshot(),
            self._snapshots,
            self._next_mark(active),
        )

    def _snapshot(self) -> Snapshot | None:
        if self._snapshots and self._snapshots[-1] == self.log_end_offset:
            return None
        return Snapshot(self.log_end_offset, self.leader_epochs.entries, self.producers.copy())

    def _next_mark(self, active: Segment) -> RecoveryMark:
        index = active.index
        return RecoveryMark(
            self.log_end_offset,
            active.base_offset,
            active.size,
            active.max_timestamp,
            active.created_ms,
            (index.stored or 0) + len(index.unsaved()),
        )

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """The job's work is done."""
        self._release(job)
        self._apply(job)

    def _apply(self, job: CheckpointJob) -> None:
        if not self._segments.is_current(job.flush) or self.failed:
            return
        self.finish_flush(job.flush)
        for write in job.index_writes:
            write.segment.index.saved(len(write.entries), write.stored + len(write.entries))
        if job.snapshot is not None:
            self._snapshots = (*self._snapshots, job.snapshot.offset)[-KEPT_SNAPSHOTS:]
        self.mark = job.mark

    def abandon_checkpoint(self, job: CheckpointJob, error: OSError) -> None:
        """The job's work failed. Without space it can be done another time; a failed sync is final."""
        self._release(job)
        self._give_up(job, error)

    def _give_up(self, job: CheckpointJob, error: OSError) -> None:
        if job.syncing or error.errno not in _PASSING_ERRORS:
            self.fail(error)

    def advance_log_start(self, offset: Offset) -> None:
        """Nothing below `offset` can be read any more; `begin_delete` frees the files."""
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def begin_delete(self) -> DeleteJob | None:
        """Take the segments that lie below the log start out of the log; None without any, or during another
        job.

        A log that is empty as a whole gets a new, empty segment, whose name says where its offsets go on.
        """
        active = self._segments.active
        if self._job is not None or self.failed or active is None:
            return None
        count = floor_segment(self.segments, self.log_start_offset)
        if self.log_start_offset == self.log_end_offset and active.size > 0:
            count = len(self.segments)
            self._start_empty_segment()
        if count <= 0:
            return None
        dropped = self._segments.drop_first(count)
        checkpoint = None
        if self.mark.offset < self.segments[0].base_offset:
            checkpoint = self._make_checkpoint(self._segments.index_writes(), self.segments[-1])
        job = DeleteJob(self._context.disk, self.directory, dropped, checkpoint)
        self._job = job
        return job

    def _start_empty_segment(self) -> None:
        try:
            self._segments.start(self.log_end_offset, 0, memoryview(b""))
        except OSError as error:
            raise StorageError(f"{self.topic_partition}: no new segment could be made: {error}") from error

    def finish_delete(self, job: DeleteJob) -> None:
        """The work is done, or failed: files that stayed are removed at the next start, being below the log
        start."""
        self._release(job)
        checkpoint = job.checkpoint
        if checkpoint is not None and checkpoint.error is not None:
            self._give_up(checkpoint, checkpoint.error)
        elif checkpoint is not None and checkpoint.done:
            self._apply(checkpoint)

    def begin_swap(self, replaced: tuple[Segment, ...]) -> bool:
        """Whether compaction may put another segment in the place of these now: no other job is under way and
        the log still has them."""
        if self._job is not None or self.failed or not set(replaced) <= set(self.segments[:-1]):
            return False
        self._job = replaced
        return True

    def finish_swap(self, replaced: tuple[Segment, ...], segment: Segment) -> None:
        """The files of `segment` are in place."""
        self._release(replaced)
        self._segments.replace(replaced, segment)

    def abandon_swap(self, replaced: tuple[Segment, ...], error: OSError) -> None:
        """What is on disk now is found out by recovery."""
        self._release(replaced)
        self.fail(error)

    def _release(self, job: object) -> None:
        assert self._job is job, "a job is finished once"
        self._job = None

    def checkpoint(self) -> LogCheckpoint:
        """What the checkpoint file keeps of this log."""
        return LogCheckpoint(
            self.topic_partition.topic,
            self.topic_id.bytes,
            self.topic_partition.partition,
            self.log_start_offset,
            min(self.high_watermark, self.flushed_offset),  # a recovery takes it for durable
            self.cleaned_offset,
            self.mark,
        )
