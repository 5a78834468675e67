"""A log as it is stored: its segments, how far they are durable, and the life of the jobs that work on them.

A job is begun on the loop, its `work` runs in a pool, then it is finished or abandoned on the loop. Flushes may
overlap; of the jobs that change files in other ways one is under way at a time. After a failure no flush counts
any more, after a truncation none that was begun before. `Log` is built on this and is what others use.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from penstock.errors import StorageError
from penstock.model import Offset, TopicId, TopicPartition
from penstock.storage.checkpoints import LogCheckpoint, RecoveryMark
from penstock.storage.closed_segments import ClosedSegments, write_list
from penstock.storage.damage import NO_DAMAGE, Damage, DamagedRange, clip_damage, merge_damage
from penstock.storage.data_directory import distrust_boot
from penstock.storage.file_cache import FileCache
from penstock.storage.jobs import CheckpointJob, DeleteJob, FlushJob, IndexWrite
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.producer_state import ProducerStates
from penstock.storage.reading import Boundaries, floor_segment
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList
from penstock.storage.snapshot import KEPT_SNAPSHOTS, Snapshot

PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""After these a write can be tried another time; after any other the disk is not trusted."""

_CUT = object()


class StoredLog:
    __slots__ = (
        "_closed",
        "_context",
        "_damage",
        "_failure",
        "_job",
        "_segments",
        "_snapshots",
        "boundaries",
        "cleaned_offset",
        "directory",
        "flushed_offset",
        "high_watermark",
        "is_list_outdated",
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
        self.producers = state.producers or ProducerStates(
            config.max_producers, config.producer_id_expiration_ms
        )
        self._segments = SegmentList(
            context.disk, context.files, directory, state.segments, state.new_directories
        )
        self._snapshots = state.snapshots
        self._damage = state.damage
        self._closed = state.closed
        self.is_list_outdated = state.is_list_outdated
        """Whether the list of closed segments has yet to be written after recovery."""
        self.boundaries = Boundaries()
        self._failure: OSError | None = None
        self._job: object | None = None

    # --- what it is

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last is written to. A snapshot: it does not change."""
        return self._segments.all

    @property
    def files(self) -> FileCache:
        return self._context.files

    @property
    def generation(self) -> int:
        """Another after every cut: what was known of the end of the log holds no more."""
        return self._segments.generation

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def recovery_point(self) -> Offset:
        return self.mark.offset

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way that changes its files: no other can begin."""
        return self._job is not None

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

    # --- damage

    @property
    def damage(self) -> Damage:
        """Ranges whose records are lost or unreadable, in order; reads inside them fail."""
        return self._damage

    def add_damage(self, damaged: DamagedRange) -> None:
        """Take a range out of service. Loop thread only."""
        self._damage = clip_damage(
            merge_damage((*self._damage, damaged)), self.log_start_offset, self.log_end_offset
        )

    def _clip_damage(self) -> None:
        """Forget damage outside of the log after its start or its end moved."""
        if self._damage is not NO_DAMAGE:
            self._damage = clip_damage(self._damage, self.log_start_offset, self.log_end_offset)

    # --- giving up

    def fail(self, error: OSError) -> None:
        """The disk let us down: nothing is appended or counted as flushed any more, until the next start."""
        if self._failure is None:
            self._failure = error
            distrust_boot(self._context.disk)

    def discard(self) -> None:
        """The log is being deleted: give up its files."""
        self._failure = self._failure or OSError(errno.ENOENT, "the log was deleted")
        self._segments.forget(self.segments)

    # --- flushing

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

    # --- checkpointing

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
            self._closed,
            self._newly_closed(),
        )

    def _newly_closed(self) -> tuple[tuple[Segment, int], ...]:
        """Segments that were closed since the list was written, with their end offsets."""
        segments, listed = self.segments, self._closed.end_offset
        first = len(segments) - 1
        while first > 0 and segments[first - 1].base_offset >= listed:
            first -= 1
        return tuple(
            (segment, following.base_offset)
            for segment, following in zip(segments[first:], segments[first + 1 :], strict=False)
        )

    def _snapshot(self) -> Snapshot | None:
        if self._snapshots and self._snapshots[-1] == self.log_end_offset:
            return None
        return Snapshot(
            self.log_end_offset,
            self.leader_epochs.entries,
            self.producers.copy(),
            self.producers.unstable.ended,
            self.producers.aborted.copy(),
        )

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
        self._closed = job.closed

    def abandon_checkpoint(self, job: CheckpointJob, error: OSError) -> None:
        """The job's work failed. Without space it can be done another time; a failed sync is final."""
        self._release(job)
        self._give_up(job, error)

    def _give_up(self, job: CheckpointJob, error: OSError) -> None:
        if job.syncing or error.errno not in PASSING_ERRORS:
            self.fail(error)

    # --- deleting below the log start

    def can_delete(self) -> bool:
        """Whether segments lie below the log start."""
        return self._count_below(self.log_start_offset) > 0

    def _count_below(self, offset: Offset) -> int:
        active = self._segments.active
        if active is None:
            return 0
        if offset == self.log_end_offset and active.size > 0:
            return len(self.segments)
        return max(floor_segment(self.segments, offset), 0)

    def begin_delete(self, below: Offset | None = None) -> DeleteJob | None:
        """Take the segments that lie below the log start out of the log; None without any, or during another
        job.

        `below` is the log start a checkpoint has: a crash among the removals may leave holes, which are none
        of the log's then. A log that is empty as a whole gets a new, empty segment, whose name says where its
        offsets go on.
        """
        if self._job is not None or self.failed:
            return None
        count = self._count_below(self.log_start_offset if below is None else below)
        if count == 0:
            return None
        if count == len(self.segments):
            self._start_empty_segment()
        dropped = self._segments.drop_first(count)
        checkpoint = None
        if self.mark.offset < self.segments[0].base_offset:
            checkpoint = self._make_checkpoint(self._segments.index_writes(), self.segments[-1])
        keep_list = partial(self._keep_list_from, self.segments[0].base_offset)
        job = DeleteJob(self._context.disk, self.directory, dropped, checkpoint, keep_list)
        self._job = job
        return job

    def _keep_list_from(self, base_offset: int, latest: ClosedSegments | None) -> None:
        """List nothing below the segments that stay.

        Without space the old list remains: its entries below the log start are ignored.
        """
        try:
            self.keep_list((latest or self._closed).starting_at(base_offset))
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise

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
        self._closed = self._closed.starting_at(self.segments[0].base_offset)

    # --- the list of closed segments

    @property
    def closed(self) -> ClosedSegments:
        return self._closed

    def keep_list(self, closed: ClosedSegments) -> None:
        """Write the list durably. Waits for the disk; within a job that changes files, which excludes others."""
        write_list(self._context.disk, self.directory, closed)
        self._closed = closed

    def adopt_list(self, closed: ClosedSegments) -> None:
        """The job that runs has written this list."""
        self._closed = closed

    # --- swapping segments for compacted ones

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

    def cancel_swap(self, replaced: tuple[Segment, ...]) -> None:
        """The swap could not begin; nothing has changed on disk."""
        self._release(replaced)

    def abandon_swap(self, replaced: tuple[Segment, ...], error: OSError) -> None:
        """What is on disk now is found out by recovery."""
        self._release(replaced)
        self.fail(error)

    # --- putting a file of keys beside a segment

    def begin_filing(self, segment: Segment) -> bool:
        """Whether a file may be put beside a closed segment now; as `begin_swap`."""
        if self._job is not None or self.failed or segment not in self.segments[:-1]:
            return False
        self._job = segment
        return True

    def finish_filing(self, segment: Segment) -> None:
        self._release(segment)

    # --- repairing a damaged range

    def begin_patch(self, segment: Segment) -> bool:
        """Whether bytes of a segment may be written over now; as `begin_swap`, for the active segment too."""
        if self._job is not None or self.failed or segment not in self.segments:
            return False
        self._job = segment
        return True

    def finish_patch(self, segment: Segment, repaired: DamagedRange) -> None:
        """The bytes of the range are whole and durable."""
        self._release(segment)
        self._damage = tuple(each for each in self._damage if each != repaired)

    def abandon_patch(self, segment: Segment, error: OSError) -> None:
        """The write failed: the range is as damaged as before, and the disk is not trusted any more."""
        self._release(segment)
        if error.errno not in PASSING_ERRORS:
            self.fail(error)

    # --- being cut

    def begin_cut(self) -> bool:
        """Whether its end may be cut now, in a pool: no other job is under way, and none begins until
        `finish_cut`."""
        if self._job is not None or self.failed:
            return False
        self._job = _CUT
        return True

    def finish_cut(self) -> None:
        self._release(_CUT)

    def _release(self, job: object) -> None:
        assert self._job is job, "a job is finished once"
        self._job = None
