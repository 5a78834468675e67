"""Jobs of a log: work on its files that runs in a thread pool, so that the loop thread does not wait for the disk.

The loop thread begins a job, its `work` runs in a thread pool, then the loop thread finishes or abandons it. Flushes
may overlap; of all other jobs only one runs at a time. The result of a flush is ignored if the log has failed, or was
truncated since the flush began.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import StorageError
from penstock.model import Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import ClosedSegments
from penstock.storage.damage import DamagedRange
from penstock.storage.disk_errors import PASSING_ERRORS
from penstock.storage.jobs import CheckpointJob, DeleteJob, FlushJob, IndexWrite
from penstock.storage.reading import floor_segment
from penstock.storage.segment import Segment
from penstock.storage.snapshot import KEPT_SNAPSHOTS, Snapshot

if TYPE_CHECKING:
    from penstock.storage.log import Log

_TRUNCATION = object()


class LogJobs:
    __slots__ = ("_job", "_log")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._job: object | None = None

    @property
    def is_busy(self) -> bool:
        """True if a job that changes files is running, so that no other such job can begin."""
        return self._job is not None

    # --- flushing

    def begin_flush(self) -> FlushJob:
        """Begin a job that makes all appends so far durable. Call `finish_flush` or `Log.fail` after its work."""
        return self._log.segment_list.begin_flush(self._log.log_end_offset)

    def finish_flush(self, job: FlushJob) -> None:
        log = self._log
        if log.segment_list.is_current(job) and not log.failed:
            log.segment_list.finish_flush(job)
            log.flushed_offset = max(log.flushed_offset, job.end_offset)
            if job.segments:
                log.boundaries.remember(
                    job.end_offset, *job.segments[-1]
                )  # reads up to the high watermark, which will reach this offset, end here

    def begin_writeback(self, length: int) -> Callable[[], None] | None:
        """Return a function that asks the kernel to write the newest `length` bytes to the disk, without a sync.

        The function may block shortly. None if no bytes are unsynced.
        """
        active = self._log.segment_list.active
        if active is None or active.writer is None:
            return None
        return partial(active.writer.start_writeback, max(0, active.size - length), length)

    # --- checkpointing

    def begin_checkpoint(self) -> CheckpointJob | None:
        """Begin a job that moves the recovery point to the log end; None if it is there, or another job is running."""
        log = self._log
        if log.failed or self._job is not None:
            return None
        index_writes, active = log.segment_list.index_writes(), log.segment_list.active
        if active is None or (log.mark.offset == log.log_end_offset and not index_writes):
            return None
        job = self._make_checkpoint(index_writes, active)
        self._job = job
        return job

    def _make_checkpoint(self, index_writes: tuple[IndexWrite, ...], active: Segment) -> CheckpointJob:
        log = self._log
        return CheckpointJob(
            log.context.disk,
            log.directory,
            self.begin_flush(),
            index_writes,
            self._snapshot(),
            log.snapshots,
            self._next_mark(active),
            log.closed,
            self._newly_closed(),
        )

    def _newly_closed(self) -> tuple[tuple[Segment, int], ...]:
        """Segments that were closed after the list was written, with their end offsets."""
        segments, listed = self._log.segments, self._log.closed.end_offset
        first = len(segments) - 1
        while first > 0 and segments[first - 1].base_offset >= listed:
            first -= 1
        return tuple(
            (segment, following.base_offset)
            for segment, following in zip(segments[first:], segments[first + 1 :], strict=False)
        )

    def _snapshot(self) -> Snapshot | None:
        log = self._log
        if log.snapshots and log.snapshots[-1] == log.log_end_offset:
            return None
        return Snapshot(
            log.log_end_offset,
            log.leader_epochs.entries,
            log.producers.copy(),
            log.producers.unstable.ended,
            log.producers.aborted.copy(),
        )

    def _next_mark(self, active: Segment) -> RecoveryMark:
        index = active.index
        return RecoveryMark(
            self._log.log_end_offset,
            active.base_offset,
            active.size,
            active.max_timestamp,
            active.created_ms,
            (index.stored or 0) + len(index.unsaved()),
        )

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Apply the result of a checkpoint whose work is done."""
        self._release(job)
        self._apply(job)

    def _apply(self, job: CheckpointJob) -> None:
        log = self._log
        if not log.segment_list.is_current(job.flush) or log.failed:
            return
        self.finish_flush(job.flush)
        for write in job.index_writes:
            write.segment.index.saved(len(write.entries), write.stored + len(write.entries))
        if job.snapshot is not None:
            log.snapshots = (*log.snapshots, job.snapshot.offset)[-KEPT_SNAPSHOTS:]
        log.mark = job.mark
        log.closed = job.closed

    def abandon_checkpoint(self, job: CheckpointJob, error: OSError) -> None:
        """End a checkpoint whose work failed. A later checkpoint can succeed if the disk was full; after a failed sync
        the log fails.
        """
        self._release(job)
        self._give_up(job, error)

    def _give_up(self, job: CheckpointJob, error: OSError) -> None:
        if job.syncing or error.errno not in PASSING_ERRORS:
            self._log.fail(error)

    # --- deleting below the log start

    def can_delete(self) -> bool:
        """True if there are segments below the log start."""
        return self._count_below(self._log.log_start_offset) > 0

    def _count_below(self, offset: Offset) -> int:
        log, active = self._log, self._log.segment_list.active
        if active is None:
            return 0
        if offset == log.log_end_offset and active.size > 0:
            return len(log.segments)
        return max(floor_segment(log.segments, offset), 0)

    def begin_delete(self, below: Offset | None = None) -> DeleteJob | None:
        """Take the segments below the log start out of the log, and return the job that removes their files.

        None if there are none, or another job is running. `below` is the log start in the written checkpoint, if it is
        lower: a crash during the removal may leave holes, which are then below the log start that recovery reads. A
        log that becomes empty gets a new, empty segment at the log end.
        """
        log = self._log
        if self._job is not None or log.failed:
            return None
        count = self._count_below(log.log_start_offset if below is None else below)
        if count == 0:
            return None
        if count == len(log.segments):
            self._start_empty_segment()
        dropped = log.segment_list.drop_first(count)
        checkpoint = None
        if log.mark.offset < log.segments[0].base_offset:
            checkpoint = self._make_checkpoint(log.segment_list.index_writes(), log.segments[-1])
        keep_list = partial(self._keep_list_from, log.segments[0].base_offset)
        job = DeleteJob(log.context.disk, log.directory, dropped, checkpoint, keep_list)
        self._job = job
        return job

    def _keep_list_from(self, base_offset: int, latest: ClosedSegments | None) -> None:
        """Write the list of closed segments without the removed segments.

        On a full disk the old list remains, because its entries below the log start are ignored.
        """
        try:
            self._log.keep_list((latest or self._log.closed).starting_at(base_offset))
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise

    def _start_empty_segment(self) -> None:
        log = self._log
        try:
            log.segment_list.start(log.log_end_offset, 0, memoryview(b""))
        except OSError as error:
            raise StorageError(f"{log.topic_partition}: no new segment could be created: {error}") from error

    def finish_delete(self, job: DeleteJob) -> None:
        """End a deletion after its work was done or has failed. The next start removes the remaining files."""
        log = self._log
        self._release(job)
        checkpoint = job.checkpoint
        if checkpoint is not None and checkpoint.error is not None:
            self._give_up(checkpoint, checkpoint.error)
        elif checkpoint is not None and checkpoint.done:
            self._apply(checkpoint)
        log.closed = log.closed.starting_at(log.segments[0].base_offset)

    # --- replacing segments by compacted ones

    def begin_swap(self, replaced: tuple[Segment, ...]) -> bool:
        """Begin a swap by compaction. True if no other job is running and the log still has these segments."""
        if self._job is not None or self._log.failed or not set(replaced) <= set(self._log.segments[:-1]):
            return False
        self._job = replaced
        return True

    def finish_swap(self, replaced: tuple[Segment, ...], segment: Segment) -> None:
        """Put `segment` in place of the `replaced` segments, after its files were put in place."""
        self._release(replaced)
        self._log.segment_list.replace(replaced, segment)

    def cancel_swap(self, replaced: tuple[Segment, ...]) -> None:
        """End a swap that could not begin and has changed nothing on the disk."""
        self._release(replaced)

    def abandon_swap(self, replaced: tuple[Segment, ...], error: OSError) -> None:
        """End a swap that failed half way: the log fails, and recovery finishes the swap at the next start."""
        self._release(replaced)
        self._log.fail(error)

    # --- putting a derived file beside a segment

    def begin_filing(self, segment: Segment, *, may_be_active: bool = False) -> bool:
        """Begin to put a derived file beside a segment, which has to be closed unless `may_be_active`.

        True if no other job is running and the log still has the segment.
        """
        segments = self._log.segments if may_be_active else self._log.segments[:-1]
        if self._job is not None or self._log.failed or segment not in segments:
            return False
        self._job = segment
        return True

    def finish_filing(self, segment: Segment) -> None:
        self._release(segment)

    # --- repairing a damaged range

    def begin_patch(self, segment: Segment) -> bool:
        """Begin to overwrite bytes of a segment. True if no other job is running and the log still has the segment."""
        if self._job is not None or self._log.failed or segment not in self._log.segments:
            return False
        self._job = segment
        return True

    def finish_patch(self, segment: Segment, repaired: DamagedRange) -> None:
        """Remove the damage, after the bytes of the range were written and synced."""
        self._release(segment)
        self._log.damage = tuple(each for each in self._log.damage if each != repaired)

    def abandon_patch(self, segment: Segment, error: OSError) -> None:
        """End a repair after a failed write: the range stays damaged, and the log fails unless the error may pass."""
        self._release(segment)
        if error.errno not in PASSING_ERRORS:
            self._log.fail(error)

    # --- truncating

    def begin_truncation(self) -> bool:
        """Begin a truncation, which runs in a thread pool. True if no other job is running.

        No job begins until `finish_truncation`.
        """
        if self._job is not None or self._log.failed:
            return False
        self._job = _TRUNCATION
        return True

    def finish_truncation(self) -> None:
        self._release(_TRUNCATION)

    def _release(self, job: object) -> None:
        assert self._job is job, "a job is finished once"
        self._job = None
