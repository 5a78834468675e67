"""One partition's log: batches appended at the end, read from anywhere, durable up to the flushed offset.

Its offsets, files and jobs are those of `StoredLog`, how it is read is in `ServedLog`. The loop thread appends and
changes state; the `work` of a job, `read`, `find_timestamp` and `max_timestamp` may run in a pool. That needs no
locks: the tuple of segments is replaced and never changed, and what a reader looks at first is changed last. An
offset is visible only after its bytes are in the file, and counts as flushed only after they and the file's name
were synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from penstock.config.topic_options import MessageTimestampType
from penstock.errors import BrokerError, DiskFull, ErrorCode, StorageError
from penstock.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import CONTROL_FLAG, BatchHeader, assign, stamp_append_time
from penstock.records.control import read_marker
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import ClosedSegments
from penstock.storage.damage import before_damage
from penstock.storage.fetched_batches import FetchedBatch, check_fetched, fill_gap
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.producer_state import AppendedBatch
from penstock.storage.reading import Boundaries, floor_segment
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.served_log import ServedLog
from penstock.storage.snapshot import snapshot_name
from penstock.storage.stored_log import PASSING_ERRORS

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_TRUNCATED_SEGMENT_BYTES = 1024 * 1024
"""A truncation into an active segment of this size ends it; a smaller one goes on taking records."""


class AppendInfo(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 where records keep the time their producer gave them."""
    log_start_offset: Offset
    duplicate: bool = False


class Log(ServedLog):
    __slots__ = (
        "_after_max_ms",
        "_append_time",
        "_before_max_ms",
        "_config",
        "_epoch",
        "_index_interval_bytes",
        "_max_relative_offset",
        "_segment_bytes",
        "_segment_ms",
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
        super().__init__(context, directory, topic_partition, topic_id, config, state)
        self._epoch = state.epochs.latest
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
        """A new, empty log. Its directory becomes durable with the first flush.

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

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """OffsetForLeaderEpoch: the largest epoch not above this one and its end; (-1, -1) if unknown."""
        return self.leader_epochs.end_of(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader of this epoch takes over; what it appends starts at the present end."""
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self._epoch = self.leader_epochs.latest

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record; -1 without one."""
        return self.leader_epochs.epoch_at(Offset(self.log_end_offset - 1))

    # --- appending

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendInfo:
        """Append one batch that passed `check_batch`, or a marker that passed `producers.check_marker`, changing
        its bytes in place; BrokerError says why not, and then nothing has changed."""
        if self._failure is not None or self._context.full:
            raise self._refusal()
        timestamp = header.max_timestamp
        if self._append_time:
            timestamp = now_ms
        elif timestamp > now_ms + self._after_max_ms or now_ms - header.base_timestamp > self._before_max_ms:
            self._check_timestamps(header, now_ms)
        has_producer = header.producer_id >= 0
        is_control = header.attributes & CONTROL_FLAG
        if has_producer and not is_control:
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
            if is_control:
                self._apply_control(batch, header, base_offset, now_ms)
            else:
                self.producers.record(header, base_offset, timestamp, now_ms)
        # In this order: whoever reads the size first and finds the end unmoved has a size that goes with it.
        self.log_end_offset = Offset(last_offset + 1)
        segment.size = position + len(batch)
        return AppendInfo(
            base_offset, Offset(last_offset), now_ms if self._append_time else -1, self.log_start_offset
        )

    def append_as_follower(self, records: memoryview, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """Append the whole batches of a range fetched from the leader, with the offsets and epochs they have."""
        if self._failure is not None or self._context.full:
            raise self._refusal()
        batches = check_fetched(records, self.log_end_offset, self.last_epoch, leader_epoch)
        place = 0
        while place < len(batches):
            self._fill_gap_before(batches[place].header, now_ms)
            place = self._append_run(records, batches, place, now_ms)

    def _fill_gap_before(self, header: BatchHeader, now_ms: int) -> None:
        """Append empty batches where a batch is too far above the log end for the relative offsets of a segment."""
        while (
            header.last_offset - self.log_end_offset > self._max_relative_offset
            and header.base_offset > self.log_end_offset
        ):
            filler, fetched = fill_gap(self.log_end_offset, self.last_epoch, header)
            self._append_run(filler, [fetched], 0, now_ms)

    def _append_run(self, records: memoryview, batches: list[FetchedBatch], place: int, now_ms: int) -> int:
        """Write as many batches as go into one segment, by one call; the place of the first that did not.

        A new segment is named after the log end, not after its first batch: compaction leaves gaps between batches, and
        recovery takes a gap between the log end and the next segment's name for a lost file.
        """
        start, first = batches[place]
        segments, segment, position = self._segments, self._segments.active, 0
        if segment is not None and not self._must_roll(segment, first.size, first.last_offset, now_ms):
            position, base_offset = segment.size, segment.base_offset
        else:
            segment, base_offset = None, self.log_end_offset
        after, end = place + 1, start + first.size
        while after < len(batches):
            header = batches[after].header
            if (
                position + end - start + header.size > self._segment_bytes
                or header.last_offset - base_offset > self._max_relative_offset
            ):
                break
            after, end = after + 1, end + header.size
        content = records[start:end]
        try:
            if segment is None:
                segment = segments.start(Offset(base_offset), now_ms, content)
            else:
                (segment.writer or segments.pin(segment)).pwrite(position, (content,))
        except OSError as error:
            raise self._write_failed(error) from error
        if position == 0:
            segment.created_ms = now_ms
        for batch_position, header in batches[place:after]:
            self._remember(segment, position + batch_position - start, header, now_ms)
            if header.is_control:
                self._apply_control(records[batch_position:], header, header.base_offset, now_ms)
        # In this order, as for a leader's append.
        self.log_end_offset = batches[after - 1].header.next_offset
        segment.size = position + len(content)
        return after

    def _remember(self, segment: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
        """A batch that came with its offsets was written at `position`."""
        if position - segment.indexed_size >= self._index_interval_bytes:
            segment.index.add(header.base_offset - segment.base_offset, position, segment.max_timestamp)
            segment.indexed_size = position
        segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
        if header.leader_epoch != self._epoch:
            self.leader_epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            self._epoch = self.leader_epochs.latest
        if header.producer_id >= 0 and not header.is_control:
            self.producers.record(header, header.base_offset, header.max_timestamp, now_ms)

    def _apply_control(self, batch: memoryview, header: BatchHeader, offset: int, now_ms: int) -> None:
        marker = read_marker(batch, header)
        if marker is not None:
            self.producers.end_transaction(marker, offset, now_ms)
            self.producers.unstable.first(
                self.high_watermark
            )  # where nobody reads, nobody else asks it to forget

    def _refusal(self) -> BrokerError:
        if self._failure is not None:
            message = f"{self.topic_partition} failed and is recovered at the next start: {self._failure}"
            return BrokerError(ErrorCode.kafka_storage_error, message)
        return DiskFull("the free space of the data directory's disk is below log.dir.min.free.bytes")

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
            or last_offset - segment.base_offset > self._max_relative_offset
            or (self.log_start_offset > segment.base_offset and self._ends_by_truncation(size))
        ) and size > 0

    def _ends_by_truncation(self, size: int) -> bool:
        """Whether an active segment that begins below the log start takes no more records.

        Its file can be deleted once all of its records are below the log start; a segment that went on taking records
        would keep its space until it is full.
        """
        return self.log_start_offset == self.log_end_offset or size >= _TRUNCATED_SEGMENT_BYTES

    def _write_failed(self, error: OSError) -> BrokerError:
        """Nothing of the batch may stay behind the end of the log, where a crash would make it one."""
        active = self._segments.active
        if error.errno not in PASSING_ERRORS:
            self.fail(error)
        elif active is not None:
            try:
                active.file.truncate(active.size)
            except OSError as second:
                self.fail(second)
        message = f"{self.topic_partition} could not be written: {error}"
        if error.errno in _NO_SPACE and not self.failed:
            return DiskFull(message)
        return BrokerError(ErrorCode.kafka_storage_error, message)

    # --- cutting

    def advance_log_start(self, offset: Offset) -> None:
        """Nothing below `offset` can be read any more; `begin_delete` frees the files."""
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.producers.aborted = self.producers.aborted.starting_at(offset)
            self._clip_damage()

    def truncate_to(self, offset: Offset, now_ms: int, keep_mark: Callable[[], None]) -> None:
        """Drop the batch that has `offset` and all after it; waits for the disk, between `begin_cut` and `finish_cut`.
        Inside a damaged range the log is cut at the start of the range.

        `keep_mark` makes the lowered recovery point and high watermark durable before anything is cut.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        offset = before_damage(self.damage, offset)
        if offset == self.log_end_offset:
            return
        kept = floor_segment(self.segments, offset) + 1
        if kept == 0:
            closed = self._closed.ending_at(offset)
            self._drop_all(self.log_start_offset, offset, closed, keep_mark)
            self._rebuild_state(offset, now_ms)
            return
        segment = self.segments[kept - 1]
        position, end_offset = segment.boundary_before(offset)
        mark = self.mark
        if mark.offset > end_offset:
            mark = RecoveryMark(
                Offset(segment.base_offset), segment.base_offset, created_ms=segment.created_ms
            )
        closed = self._closed
        if closed.end_offset > segment.base_offset:
            closed = closed.ending_at(segment.base_offset)
        self._keep_truncation(min(self.log_start_offset, end_offset), end_offset, mark, closed, keep_mark)
        try:
            self._cut(kept, segment, position, end_offset)
        except OSError as error:
            self.fail(error)
            raise StorageError(f"{self.topic_partition} could not be truncated: {error}") from error
        self._rebuild_state(end_offset, now_ms)

    def restart_at(self, offset: Offset, now_ms: int, keep_mark: Callable[[], None]) -> None:
        """Drop everything and go on at `offset`, as when the leader has nothing older; as `truncate_to`.

        The mark alone says then where the log begins: without it recovery would miss what is before its first segment.
        """
        self.truncate_to(self.log_start_offset, now_ms, keep_mark)
        self._drop_all(offset, offset, ClosedSegments(offset), keep_mark)
        self.leader_epochs, self._epoch = LeaderEpochs(), NO_LEADER_EPOCH
        self.producers.restore(())
        self.high_watermark = offset

    def _keep_truncation(
        self,
        log_start_offset: Offset,
        end_offset: Offset,
        mark: RecoveryMark,
        closed: ClosedSegments,
        keep_mark: Callable[[], None],
    ) -> None:
        """Make checkpoint and list durable before files change; on an OSError the log is as it was."""
        before = self.log_start_offset, self.high_watermark, self.mark
        self.log_start_offset, self.mark = log_start_offset, mark
        self.high_watermark = min(self.high_watermark, end_offset)
        try:
            keep_mark()
            if closed != self._closed:
                self.keep_list(closed)
        except OSError:
            self.log_start_offset, self.high_watermark, self.mark = before
            raise

    def _drop_all(
        self,
        log_start_offset: Offset,
        end_offset: Offset,
        closed: ClosedSegments,
        keep_mark: Callable[[], None],
    ) -> None:
        """Remove every segment; the next one is named after `end_offset`."""
        mark = RecoveryMark(end_offset, end_offset)
        self._keep_truncation(log_start_offset, end_offset, mark, closed, keep_mark)
        self.flushed_offset = self.log_end_offset = end_offset
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.boundaries = Boundaries()
        self._clip_damage()
        try:
            self._remove_all()
        except OSError as error:
            self.fail(error)
            raise StorageError(f"{self.topic_partition} could not be truncated: {error}") from error

    def _remove_all(self) -> None:
        """Remove snapshots first: without segments, recovery takes the newest snapshot for the log end."""
        disk = self._context.disk
        for snapshot in self._snapshots:
            disk.remove(f"{self.directory}/{snapshot_name(snapshot)}")
        self._snapshots = ()
        disk.sync_dir(self.directory)
        for segment in self._segments.drop_last(0):
            segment.remove_files(disk)
        disk.sync_dir(self.directory)

    def _cut(self, kept: int, segment: Segment, position: int, end_offset: Offset) -> None:
        dropped = self._segments.drop_last(kept)
        self.boundaries = Boundaries()
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self._clip_damage()
        disk = self._context.disk
        for old in reversed(dropped):  # newest first, so that a crash leaves no hole
            old.remove_files(disk)
        segment.cut(position, disk)
        for snapshot in self._snapshots:
            if snapshot > end_offset:
                disk.remove(f"{self.directory}/{snapshot_name(snapshot)}")
        disk.sync_dir(self.directory)
        self._snapshots = tuple(snapshot for snapshot in self._snapshots if snapshot <= end_offset)

    def _rebuild_state(self, end_offset: Offset, now_ms: int) -> None:
        replay = Replay(self._config, now_ms)
        replay.restore(
            self._context.disk,
            self.directory,
            self._snapshots,
            self.segments,
            end_offset,
            is_compacted=self.cleaned_offset > 0,
        )
        replay.epochs.truncate_from_start(self.log_start_offset)
        replay.producers.aborted = replay.producers.aborted.starting_at(self.log_start_offset)
        self.leader_epochs, self.producers = replay.epochs, replay.producers
        self._epoch = self.leader_epochs.latest
