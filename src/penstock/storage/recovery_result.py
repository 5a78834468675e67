"""The last part of a recovery: the state that a log starts from, and its complete list of closed segments."""

from __future__ import annotations

from itertools import pairwise

from penstock.model import NO_LEADER_EPOCH, Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import LOST, NO_RECORDS, ClosedSegment, ClosedSegments, describe
from penstock.storage.damage import clip_damage, merge_damage
from penstock.storage.log_state import LogState
from penstock.storage.recovery_findings import Findings
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.snapshot import snapshot_name


def recovered_state(
    findings: Findings,
    replay: Replay,
    segments: tuple[Segment, ...],
    snapshots: tuple[Offset, ...],
    log_end_offset: Offset,
    mark: RecoveryMark,
) -> LogState:
    """The state that the log starts from. All file names of the log are durable when this returns."""
    _settle_names(findings, segments, snapshots, log_end_offset, mark)
    log_start_offset = findings.log_start(list(segments), log_end_offset)
    epochs, producers = replay.epochs, replay.producers
    producers.aborted = producers.aborted.starting_at(log_start_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    closed = _complete_list(findings, segments, log_start_offset, log_end_offset)
    checkpoint = findings.checkpoint
    # Records below the log start were committed before they were deleted. The high watermark in the checkpoint may be
    # lower than the log start, because it is limited to the flushed offset.
    committed = min(checkpoint.high_watermark, log_end_offset) if checkpoint else Offset(0)
    return LogState(
        segments=segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=max(committed, log_start_offset),
        committed_epoch=checkpoint.committed_epoch if checkpoint else NO_LEADER_EPOCH,
        cleaned_offset=min(checkpoint.cleaned_offset, log_end_offset) if checkpoint else Offset(0),
        mark=mark,
        epochs=epochs,
        producers=producers,
        snapshots=tuple(offset for offset in snapshots if offset <= log_end_offset),
        damage=clip_damage(merge_damage(findings.damage), log_start_offset, log_end_offset),
        closed=closed,
        is_list_outdated=findings.is_old or closed != findings.listed,
    )


def _settle_names(
    findings: Findings,
    segments: tuple[Segment, ...],
    snapshots: tuple[Offset, ...],
    log_end_offset: Offset,
    mark: RecoveryMark,
) -> None:
    """Remove snapshots above the log end, and sync the directory if names in it may not be durable."""
    for offset in snapshots:
        if offset > log_end_offset:
            findings.disk.remove(f"{findings.directory}/{snapshot_name(offset)}")
            findings.has_new_names = True
    if findings.has_new_names or (segments and not _is_name_durable(findings, segments[-1], mark)):
        findings.disk.sync_dir(findings.directory)


def _is_name_durable(findings: Findings, last: Segment, mark: RecoveryMark) -> bool:
    """True if the name of the last segment is durable: the last checkpoint synced it, because the segment had bytes."""
    return findings.is_marked and mark.position > 0 and last.base_offset == mark.base_offset


def _complete_list(
    findings: Findings, segments: tuple[Segment, ...], log_start_offset: Offset, log_end_offset: Offset
) -> ClosedSegments:
    """The list of closed segments, completed with later closed segments and with the holes that were found."""
    closed = findings.closed
    if not findings.is_listed:
        closed = ClosedSegments(log_start_offset)
        if segments and segments[0].base_offset < log_start_offset:
            closed = ClosedSegments(Offset(segments[0].base_offset))
    entries = [
        ClosedSegment(each.base_offset, each.end_offset, LOST)
        for each in clip_damage(
            merge_damage(findings.missing), max(closed.end_offset, log_start_offset), log_end_offset
        )
    ]
    lost_from = [entry.base_offset for entry in entries]
    listed = {entry.base_offset for entry in closed.entries}
    for segment, following in pairwise(segments):
        if segment.base_offset not in listed:
            end_offset = min(
                (offset for offset in lost_from if segment.base_offset <= offset < following.base_offset),
                default=following.base_offset,
            )
            if end_offset > segment.base_offset:
                entries.append(describe(findings.disk, segment, end_offset))
    first = segments[0].base_offset if segments else log_end_offset
    prefix_end = min([first, *lost_from])
    if not findings.is_listed and log_start_offset < prefix_end:
        entries.append(ClosedSegment(log_start_offset, prefix_end, NO_RECORDS))
    return closed.extended(entries) if entries else closed
