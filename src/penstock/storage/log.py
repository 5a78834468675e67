"""One partition's log: batches appended at the end, read from anywhere, durable up to the flushed offset.

`Log` holds the offsets and the derived state (leader epochs, producers) and appends. Its parts are the segments
(`segment_list`), `LogReader` for reads, and `LogJobs` for flushes, checkpoints and all other work on files, which runs
in a thread pool; `log_truncation` removes the end of a log. The loop thread appends and changes state; the `work` of a
job, `read`, `find_timestamp` and `max_timestamp` may run in a thread pool. This needs no locks: the tuple of segments
is replaced and never changed, and the value that readers look at first is changed last. An offset is visible only after
its bytes are in the file, and counts as flushed only after the bytes and the name of the file were synced.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from penstock.config.topic_values import MessageTimestampType
from penstock.errors import BrokerError, DiskFull, ErrorCode
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import CONTROL_FLAG, BatchHeader, assign, stamp_append_time
from penstock.records.control import AbortedTransaction, read_marker
from penstock.storage.checkpoints import LogCheckpoint
from penstock.storage.closed_segments import ClosedSegments, write_list
from penstock.storage.damage import NO_DAMAGE, DamagedRange, clip_damage, merge_damage
from penstock.storage.data_directory import distrust_boot
from penstock.storage.disk_errors import NO_SPACE_ERRORS, PASSING_ERRORS
from penstock.storage.file_cache import FileCache
from penstock.storage.follower_append import append_fetched
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_config import LogConfig
from penstock.storage.log_jobs import LogJobs
from penstock.storage.log_reader import LogReader
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.producer_state import AppendedBatch, ProducerStates
from penstock.storage.reading import Boundaries
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList

_TRUNCATED_SEGMENT_BYTES = 1024 * 1024
"""Size in bytes from which an active segment is rolled when the log start moves into it."""


class AppendInfo(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """Append time in milliseconds; -1 if records keep the time of their producer."""
    log_start_offset: Offset
    duplicate: bool = False


class Log:
    __slots__ = (
        "_after_max_ms",
        "_append_time",
        "_before_max_ms",
        "_config",
        "_index_interval_bytes",
        "_max_relative_offset",
        "_segment_bytes",
        "_segment_ms",
        "boundaries",
        "cleaned_offset",
        "closed",
        "committed_epoch",
        "context",
        "damage",
        "directory",
        "failure",
        "find_timestamp",
        "flushed_offset",
        "high_watermark",
        "is_list_outdated",
        "jobs",
        "latest_epoch",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "mark",
        "max_timestamp",
        "producers",
        "read",
        "read_committed",
        "segment_list",
        "snapshots",
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
        self.context = context
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.flushed_offset = state.log_end_offset
        self.high_watermark = state.high_watermark
        """High watermark, raised by the replica's `ReplicatedPartition` and checkpointed with the log."""
        self.committed_epoch = max(
            state.committed_epoch, state.epochs.epoch_at(Offset(state.high_watermark - 1))
        )
        """Newest leader epoch whose leader is known to have all records below the high watermark."""
        self.cleaned_offset = state.cleaned_offset
        """Offset up to which the log is compacted: each key has at most one record below it."""
        self.mark = state.mark
        self.leader_epochs = state.epochs
        self.producers = state.producers or ProducerStates(
            config.max_producers, config.producer_id_expiration_ms
        )
        self.segment_list = SegmentList(
            context.disk, context.files, directory, state.segments, state.new_directories
        )
        self.snapshots = state.snapshots
        """Offsets of the snapshot files, in order."""
        self.damage = state.damage
        """Ranges whose records are lost or unreadable, in order; reads inside them fail."""
        if self.damage:
            context.unsound[self] = None
        self.closed = state.closed
        """List of closed segments as it is on the disk."""
        self.is_list_outdated = state.is_list_outdated
        """True if recovery has changed the list of closed segments and it was not written yet."""
        self.boundaries = Boundaries()
        self.failure: OSError | None = None
        """Disk error that stopped the log: until the next start nothing is appended or counts as flushed."""
        self.latest_epoch = state.epochs.latest
        """`leader_epochs.latest`, kept here because every append compares it."""
        self.config = config
        self.jobs = LogJobs(self)
        reader = LogReader(self)
        # Bound methods as attributes: every fetch calls one, and a delegating method would add a call.
        self.read = reader.read
        self.read_committed = reader.read_committed
        self.find_timestamp = reader.find_timestamp
        self.max_timestamp = reader.max_timestamp

    @classmethod
    def create(
        cls,
        context: StorageContext,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> Log:
        """Create a new, empty log. Its directory becomes durable with the first flush.

        Its list of closed segments is written by `LogManager.create`.
        """
        context.disk.make_dir(directory)
        state = LogState(new_directories=(directory.rpartition("/")[0], directory))
        return cls(context, directory, topic_partition, topic_id, config, state)

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms
        self._max_relative_offset = config.max_relative_offset
        self._index_interval_bytes = config.index_interval_bytes
        self._append_time = config.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.producers.set_limits(config.max_producers, config.producer_id_expiration_ms)

    # --- state

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one. A tuple is replaced and never changed."""
        return self.segment_list.all

    @property
    def files(self) -> FileCache:
        return self.context.files

    @property
    def generation(self) -> int:
        """Number that increases with every truncation and so invalidates what was cached about the end of the log."""
        return self.segment_list.generation

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def recovery_point(self) -> Offset:
        return self.mark.offset

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def unsynced_bytes(self) -> int:
        return self.segment_list.unsynced_bytes

    @property
    def unmarked_bytes(self) -> int:
        """Number of bytes after the recovery mark, which a recovery would have to check."""
        mark = self.mark
        size = sum(segment.size for segment in self.segments if segment.base_offset >= mark.base_offset)
        return size - mark.position

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which every transaction has ended and its marker is committed."""
        high_watermark = self.high_watermark
        first = self.producers.unstable.first(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return max(Offset(first), self.log_start_offset)

    def aborted_transactions(self, from_offset: Offset, to_offset: Offset) -> list[AbortedTransaction]:
        """Aborted transactions for a reader of [from_offset, to_offset). May include a few without records there."""
        return self.producers.aborted.between(from_offset, to_offset)

    def checkpoint(self) -> LogCheckpoint:
        """The entry of this log in the checkpoint file. May run in a pool while the loop thread changes the offsets."""
        committed_epoch = (
            self.committed_epoch
        )  # read before the high watermark, so that the epoch is not newer than it
        return LogCheckpoint(
            self.topic_partition.topic,
            self.topic_id.bytes,
            self.topic_partition.partition,
            self.log_start_offset,
            min(
                self.high_watermark, self.flushed_offset
            ),  # recovery assumes that records below it are durable
            self.cleaned_offset,
            self.mark,
            committed_epoch,
        )

    # --- leader epochs

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch not above `epoch` and its end offset (OffsetForLeaderEpoch); (-1, -1) if unknown."""
        return self.leader_epochs.end_of(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Record that the leader of `epoch` takes over; its records start at the log end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self.latest_epoch = self.leader_epochs.latest

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record; -1 if the log is empty."""
        return self.leader_epochs.epoch_at(Offset(self.log_end_offset - 1))

    # --- appending

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        keeps_time: bool = False,
    ) -> AppendInfo:
        """Append one batch that passed `check_batch`, or a marker that passed `producers.check_marker`.

        The bytes of `batch` are changed: offset and leader epoch are written into the header, and the append time if
        the topic uses LogAppendTime and `keeps_time` is False. After a BrokerError the log is unchanged.
        """
        if self.failure is not None or self.context.full:
            raise self._refusal()
        timestamp = header.max_timestamp
        append_time_ms = now_ms if self._append_time and not keeps_time else -1
        if append_time_ms >= 0:
            timestamp = now_ms
        elif timestamp > now_ms + self._after_max_ms or now_ms - header.base_timestamp > self._before_max_ms:
            self._check_timestamps(header, now_ms)
        has_producer = header.producer_id >= 0
        is_control = header.attributes & CONTROL_FLAG
        if has_producer and not is_control and (earlier := self.producers.check(header)) is not None:
            return self._duplicate(earlier)
        if append_time_ms >= 0:
            stamp_append_time(batch, now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        assign(batch, base_offset, leader_epoch)
        segments = self.segment_list
        segment = segments.active
        position = 0
        try:
            if segment is None or self.must_roll(segment, len(batch), last_offset, now_ms):
                segment = segments.start(base_offset, now_ms, batch)
            else:
                position = segment.size
                (segment.writer or segments.pin(segment)).pwrite(position, (batch,))
        except OSError as error:
            raise self.write_failed(error) from error
        if position - segment.indexed_size >= self._index_interval_bytes:
            segment.add_index_entry(base_offset, position)
        if position == 0:
            segment.created_ms = now_ms
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
        if leader_epoch != self.latest_epoch:
            self.assign_epoch(leader_epoch)
        if has_producer:
            if is_control:
                self.apply_control(batch, header, base_offset, now_ms)
            else:
                self.producers.record(header, base_offset, timestamp, now_ms)
        # In this order: readers read the size first, then the log end. If the log end is unchanged, the size fits it.
        self.log_end_offset = Offset(last_offset + 1)
        segment.size = position + len(batch)
        return AppendInfo(base_offset, Offset(last_offset), append_time_ms, self.log_start_offset)

    def append_as_follower(self, records: memoryview, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """Append the whole batches of a range fetched from the leader, with their offsets and epochs."""
        if self.failure is not None or self.context.full:
            raise self._refusal()
        append_fetched(self, records, leader_epoch, now_ms)

    def apply_control(self, batch: memoryview, header: BatchHeader, offset: int, now_ms: int) -> None:
        marker = read_marker(batch, header)
        if marker is not None:
            self.producers.end_transaction(marker, offset, now_ms)
            # Drops transactions that are committed by now, which only calls of `first` do.
            self.producers.unstable.first(self.high_watermark)

    def _refusal(self) -> BrokerError:
        if self.failure is not None:
            message = (
                f"the log of {self.topic_partition} failed until the next start of the broker: {self.failure}"
            )
            return BrokerError(ErrorCode.kafka_storage_error, message)
        return DiskFull("the free space of the data directory's disk is below log.dir.min.free.bytes")

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        if header.max_timestamp > now_ms + self._after_max_ms:
            raise BrokerError(
                ErrorCode.invalid_timestamp,
                f"timestamp {header.max_timestamp} is more than {self._after_max_ms} ms after the clock ({now_ms})",
            )
        if header.base_timestamp >= 0:
            raise BrokerError(
                ErrorCode.invalid_timestamp,
                f"timestamp {header.base_timestamp} is more than {self._before_max_ms} ms before the clock ({now_ms})",
            )

    def _duplicate(self, earlier: AppendedBatch) -> AppendInfo:
        return AppendInfo(
            Offset(earlier.base_offset),
            Offset(earlier.last_offset),
            earlier.timestamp if self._append_time else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def must_roll(self, segment: Segment, length: int, last_offset: int, now_ms: int) -> bool:
        size = segment.size
        return (
            size + length > self._segment_bytes
            or now_ms - segment.created_ms >= self._segment_ms
            or last_offset - segment.base_offset > self._max_relative_offset
            or (self.log_start_offset > segment.base_offset and self._ends_by_truncation(size))
        ) and size > 0

    def _ends_by_truncation(self, size: int) -> bool:
        """True if an active segment that begins below the log start must be rolled because of its `size`.

        Its file can be deleted once all of its records are below the log start. Without rolling, its disk space would
        not be freed until the segment is full.
        """
        return self.log_start_offset == self.log_end_offset or size >= _TRUNCATED_SEGMENT_BYTES

    def write_failed(self, error: OSError) -> BrokerError:
        """Truncate the bytes that a failed write left after the log end, so that recovery does not find a batch there.

        Return the error for the client.
        """
        active = self.segment_list.active
        if error.errno not in PASSING_ERRORS:
            self.fail(error)
        elif active is not None:
            try:
                active.file.truncate(active.size)
            except OSError as second:
                self.fail(second)
        message = f"the log of {self.topic_partition} could not be written: {error}"
        if error.errno in NO_SPACE_ERRORS and not self.failed:
            return DiskFull(message)
        return BrokerError(ErrorCode.kafka_storage_error, message)

    # --- damage

    def add_damage(self, damaged: DamagedRange) -> None:
        """Add a damaged range, in which reads fail from now on. Loop thread only."""
        self.damage = clip_damage(
            merge_damage((*self.damage, damaged)), self.log_start_offset, self.log_end_offset
        )
        self.context.unsound[self] = None

    def clip_damage(self) -> None:
        """Remove damage below the log start or above the log end, after one of them has moved."""
        if self.damage is not NO_DAMAGE:
            self.damage = clip_damage(self.damage, self.log_start_offset, self.log_end_offset)

    def fail(self, error: OSError) -> None:
        """Stop appends and flushes until the next start, because the disk has failed."""
        if self.failure is None:
            self.failure = error
            self.context.unsound[self] = None
            distrust_boot(self.context.disk)

    def discard(self) -> None:
        """Close a log that is being deleted: appends fail, and its files are dropped from the cache."""
        self.failure = self.failure or OSError(errno.ENOENT, "the log was deleted")
        self.context.unsound.pop(self, None)
        self.segment_list.forget(self.segments)

    # --- start and end

    def advance_log_start(self, offset: Offset) -> None:
        """Make `offset` the log start offset; `LogJobs.begin_delete` removes the segments below it.

        Only committed records are deleted, so the high watermark is raised to `offset` if it is lower.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.aborted = self.producers.aborted.starting_at(offset)
            self.clip_damage()

    def keep_list(self, closed: ClosedSegments) -> None:
        """Write the list of closed segments durably. Waits for the disk; to be called only by the job of `LogJobs`."""
        write_list(self.context.disk, self.directory, closed)
        self.closed = closed

    def adopt_state(self, epochs: LeaderEpochs, producers: ProducerStates) -> None:
        """Use leader epochs and producers that were rebuilt from the log."""
        self.leader_epochs, self.producers = epochs, producers
        self.latest_epoch = epochs.latest

    def out_of_range(self, offset: Offset) -> BrokerError:
        return BrokerError(
            ErrorCode.offset_out_of_range,
            f"offset {offset} is not in {self.log_start_offset} to {self.log_end_offset} of {self.topic_partition}",
        )
