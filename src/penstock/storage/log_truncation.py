"""Truncation of a log: removing its end, or everything.

Waits for the disk; runs in a thread pool between `LogJobs.begin_truncation` and `finish_truncation`. Checkpoint and
list of closed segments are made durable before files change: otherwise recovery would trust removed records, or report
them as lost.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import StorageError
from penstock.model import Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import ClosedSegments
from penstock.storage.damage import before_damage
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.reading import Boundaries, floor_segment
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.snapshot import snapshot_name


def truncate_log(log: Log, offset: Offset, now_ms: int, keep_mark: Callable[[], None]) -> None:
    """Remove the batch that contains `offset` and all later ones. In a damaged range, truncate to the range's start.

    `keep_mark` writes the checkpoint with the lowered recovery point and high watermark durably.
    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise log.out_of_range(offset)
    offset = before_damage(log.damage, offset)
    if offset == log.log_end_offset:
        return
    kept = floor_segment(log.segments, offset) + 1
    if kept == 0:
        _drop_all(log, log.log_start_offset, offset, log.closed.ending_at(offset), keep_mark)
        _rebuild_state(log, offset, now_ms)
        return
    segment = log.segments[kept - 1]
    position, end_offset = segment.boundary_before(offset)
    mark = log.mark
    if mark.offset > end_offset:
        mark = RecoveryMark(Offset(segment.base_offset), segment.base_offset, created_ms=segment.created_ms)
    closed = log.closed
    if closed.end_offset > segment.base_offset:
        closed = closed.ending_at(segment.base_offset)
    _keep_truncation(log, min(log.log_start_offset, end_offset), end_offset, mark, closed, keep_mark)
    try:
        _drop_end(log, kept, segment, position, end_offset)
    except OSError as error:
        raise _failed(log, error) from error
    _rebuild_state(log, end_offset, now_ms)


def restart_log(log: Log, offset: Offset, now_ms: int, keep_mark: Callable[[], None]) -> None:
    """Remove all records and continue the log at `offset`, for a leader that has no older records.

    Without the new log start in the checkpoint, recovery would report records before the first segment as lost.
    """
    truncate_log(log, log.log_start_offset, now_ms, keep_mark)
    _drop_all(log, offset, offset, ClosedSegments(offset), keep_mark)
    log.producers.restore(())
    log.adopt_state(LeaderEpochs(), log.producers)
    log.high_watermark = offset


def _keep_truncation(
    log: Log,
    log_start_offset: Offset,
    end_offset: Offset,
    mark: RecoveryMark,
    closed: ClosedSegments,
    keep_mark: Callable[[], None],
) -> None:
    """Make checkpoint and list durable before files change; after an OSError the state of the log is unchanged."""
    before = log.log_start_offset, log.high_watermark, log.mark
    log.log_start_offset, log.mark = log_start_offset, mark
    log.high_watermark = min(log.high_watermark, end_offset)
    try:
        keep_mark()
        if closed != log.closed:
            log.keep_list(closed)
    except OSError:
        log.log_start_offset, log.high_watermark, log.mark = before
        raise


def _drop_all(
    log: Log,
    log_start_offset: Offset,
    end_offset: Offset,
    closed: ClosedSegments,
    keep_mark: Callable[[], None],
) -> None:
    """Remove all segments; the next segment begins at `end_offset`."""
    mark = RecoveryMark(end_offset, end_offset)
    _keep_truncation(log, log_start_offset, end_offset, mark, closed, keep_mark)
    log.flushed_offset = log.log_end_offset = end_offset
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.boundaries = Boundaries()
    log.clip_damage()
    try:
        _remove_all(log)
    except OSError as error:
        raise _failed(log, error) from error


def _remove_all(log: Log) -> None:
    """Remove snapshots, then segments: without segments, recovery uses the offset of the newest snapshot as log end."""
    disk = log.context.disk
    for snapshot in log.snapshots:
        disk.remove(f"{log.directory}/{snapshot_name(snapshot)}")
    log.snapshots = ()
    disk.sync_dir(log.directory)
    for segment in log.segment_list.drop_last(0):
        segment.remove_files(disk)
    disk.sync_dir(log.directory)


def _drop_end(log: Log, kept: int, segment: Segment, position: int, end_offset: Offset) -> None:
    """Keep the first `kept` segments, the last of them up to `position`."""
    dropped = log.segment_list.drop_last(kept)
    log.boundaries = Boundaries()
    log.log_end_offset = end_offset
    log.flushed_offset = min(log.flushed_offset, end_offset)
    log.high_watermark = min(log.high_watermark, end_offset)
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.clip_damage()
    disk = log.context.disk
    for old in reversed(dropped):  # newest first, so that a crash leaves no hole
        old.remove_files(disk)
    segment.truncate(position, disk)
    for snapshot in log.snapshots:
        if snapshot > end_offset:
            disk.remove(f"{log.directory}/{snapshot_name(snapshot)}")
    disk.sync_dir(log.directory)
    log.snapshots = tuple(snapshot for snapshot in log.snapshots if snapshot <= end_offset)


def _rebuild_state(log: Log, end_offset: Offset, now_ms: int) -> None:
    replay = Replay(log.config, now_ms)
    replay.restore(
        log.context.disk,
        log.directory,
        log.snapshots,
        log.segments,
        end_offset,
        is_compacted=log.cleaned_offset > 0,
    )
    replay.epochs.truncate_from_start(log.log_start_offset)
    replay.producers.aborted = replay.producers.aborted.starting_at(log.log_start_offset)
    log.adopt_state(replay.epochs, replay.producers)


def _failed(log: Log, error: OSError) -> StorageError:
    log.fail(error)
    return StorageError(f"the log of {log.topic_partition} could not be truncated: {error}")
