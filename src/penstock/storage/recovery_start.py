"""The first part of a recovery: which segments a log has, and from which position on they have to be checked.

Files are compared with the list of closed segments and with the checkpoint; no batch is read. A segment whose index is
complete needs no check: indexes are completed after the log was synced.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.model import Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_check import ClosedCheck, first_batch, set_aside
from penstock.storage.disk import FileStatus
from penstock.storage.index import IndexEntry
from penstock.storage.reading import floor_segment
from penstock.storage.recovery_findings import Findings
from penstock.storage.segment import (
    LOG_SUFFIX,
    UNKNOWN_TIMESTAMP,
    UNREACHABLE_OFFSET,
    Segment,
    segment_name,
)
from penstock.storage.stray_files import derived_files, offsets_with


def find_segments(findings: Findings, names: list[str], snapshots: tuple[Offset, ...]) -> list[Segment]:
    """The segments that belong to the log, in order. Others are removed or set aside."""
    derived = derived_files(names)
    found = [
        _find(findings, each, derived.get(each, frozenset())) for each in offsets_with(names, LOG_SUFFIX)
    ]
    segments = _compare_with_list(findings, _without_deleted(findings, found))
    segments = _without_exchanged(findings, segments)
    if segments and _is_unproven(findings, segments[0], snapshots):
        findings.remove(segments, "the segments before it never became durable")
        return []
    return segments


def find_start(findings: Findings, found: list[Segment]) -> tuple[int, RecoveryMark]:
    """The first segment to check, as its place in `found`, and the position to check from."""
    place, mark = _choose_start(findings, found)
    _check_chain(findings, found[: place + 1])
    _check_unlisted_ends(findings, found[: place + 1])
    return place, mark


def segment_from_mark(findings: Findings, found: Segment, mark: RecoveryMark) -> Segment:
    """The segment as it was when the mark was set; its size grows again while the tail is checked."""
    return Segment(
        findings.files,
        findings.directory,
        found.base_offset,
        size=mark.position,
        max_timestamp=mark.max_timestamp,
        created_ms=mark.created_ms,
        stored_entries=mark.index_entries,
        derived=found.derived,
    )


def mark_at(findings: Findings, last: Segment, end: IndexEntry) -> RecoveryMark:
    """A mark at the end of the last segment, where every segment is complete and nothing is left to check."""
    end_offset = Offset(last.base_offset + end.relative_offset)
    if findings.checkpoint is not None and not findings.is_listed:
        end_offset = max(end_offset, findings.checkpoint.mark.offset)
    return RecoveryMark(
        end_offset,
        last.base_offset,
        end.position,
        end.max_timestamp,
        findings.now_ms,
        last.index.stored or 0,
    )


# --- files


def _find(findings: Findings, base_offset: int, derived: frozenset[str]) -> tuple[Segment, FileStatus]:
    status = findings.disk.status(f"{findings.directory}/{segment_name(base_offset)}{LOG_SUFFIX}")
    segment = Segment(
        findings.files,
        findings.directory,
        base_offset,
        size=status.size,
        max_timestamp=UNKNOWN_TIMESTAMP,
        stored_entries=None,
        derived=derived,
    )
    return segment, status


def _without_deleted(
    findings: Findings, found: list[tuple[Segment, FileStatus]]
) -> list[tuple[Segment, FileStatus]]:
    """Finish a deletion: segments below the log start were being removed, in any order, and may have holes."""
    if findings.checkpoint is None:
        return found
    segments = tuple(segment for segment, _ in found)
    first = max(floor_segment(segments, findings.checkpoint.log_start_offset), 0)
    findings.remove_files(list(segments[:first]))
    return found[first:]


def _compare_with_list(findings: Findings, found: list[tuple[Segment, FileStatus]]) -> list[Segment]:
    check = ClosedCheck(findings.disk, findings.closed, findings.checkpointed_start)
    segments = check.run(found)
    findings.has_new_names = findings.has_new_names or len(segments) < len(found)
    findings.closed = check.closed
    findings.damage += check.damage
    findings.is_replaced = check.is_replaced
    return segments


def _without_exchanged(findings: Findings, segments: list[Segment]) -> list[Segment]:
    """Set aside unlisted files whose first batch belongs to a later segment, and note their records as missing.

    A segment ends where the next one begins, so such a file was exchanged with another one after it was written.
    """
    if not findings.is_listed:
        return segments
    exchanged = {
        segment: following
        for segment, following in pairwise(segments)
        if segment.base_offset >= findings.list_end and _begins_at(segment, following.base_offset)
    }
    for segment, following in exchanged.items():
        findings.miss(Offset(segment.base_offset), Offset(following.base_offset))
        findings.report_loss()
        set_aside(findings.disk, segment)
        findings.has_new_names = True
    return [segment for segment in segments if segment not in exchanged]


def _begins_at(segment: Segment, offset: int) -> bool:
    """True if the first batch of a file is whole and its base offset is not below `offset`."""
    first = first_batch(segment)
    return first is not None and first.base_offset >= offset


def _is_unproven(findings: Findings, first: Segment, snapshots: tuple[Offset, ...]) -> bool:
    """True if files before the first one are missing because a power loss took their names.

    Nothing of the log was durable then, because it becomes durable in order. A deletion leaves a snapshot of an offset
    at or above what stays. Without a power loss the log is complete, or another program removed the files. An earlier
    version named the first segment of a follower after its first batch, which compaction may have left above the log
    start: after a power loss it is unknown whether such a log is complete.
    """
    checkpoint = findings.checkpoint
    if checkpoint is None:
        return False
    if not findings.is_listed and checkpoint.log_start_offset < checkpoint.mark.offset <= first.base_offset:
        # The segments below the mark were synced, so no power loss took them.
        findings.miss(checkpoint.log_start_offset, Offset(first.base_offset))
        return False
    known = max(checkpoint.mark.offset, checkpoint.log_start_offset, *snapshots, findings.list_end)
    if first.base_offset <= known or (findings.is_same_boot and (findings.is_old or findings.is_listed)):
        return False
    if findings.is_old or findings.is_same_boot:
        findings.miss(checkpoint.log_start_offset, Offset(first.base_offset))
        return False
    return True


# --- the mark


def _choose_start(findings: Findings, found: list[Segment]) -> tuple[int, RecoveryMark]:
    place = 0
    if findings.checkpoint is not None:
        mark = findings.checkpoint.mark
        place = max(floor_segment(tuple(found), mark.base_offset), 0)
        findings.is_marked = _fits_mark(findings, found[place], mark, last=place == len(found) - 1)
        if findings.is_marked:
            return place, mark
    while place < len(found) - 1 and found[place].indexed_end() is not None:
        place += 1
    end = found[place].indexed_end()
    if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
        return place, mark_at(findings, found[place], end)
    base_offset = found[place].base_offset
    return place, RecoveryMark(Offset(base_offset), base_offset, created_ms=findings.now_ms)


def _fits_mark(findings: Findings, segment: Segment, mark: RecoveryMark, *, last: bool) -> bool:
    """True if the file is still the one in which the mark was set, with all bytes that were synced then.

    A segment that was closed later may have been compacted, to less than the mark has or by chance to its very size:
    compaction waits for a mark behind the segment, but not for the checkpoint file that has this mark.
    """
    if segment.base_offset != mark.base_offset:
        return False
    if segment.size < mark.position:
        if findings.is_compacted(segment):
            return False
        lost_bytes = mark.position - segment.size
        findings.problems.append(f"{segment.log_file.path} has lost {lost_bytes} bytes that had been synced")
        return False
    if last and segment.size == mark.position:
        return True
    end = segment.indexed_end()
    return end is None or segment.base_offset + end.relative_offset == mark.offset


# --- holes


def _check_chain(findings: Findings, found: list[Segment]) -> None:
    """Find a hole between the listed segments and the next one."""
    following = next((each for each in found if each.base_offset >= findings.list_end), None)
    if following is None or not findings.is_listed:
        return
    if not findings.closed.entries and found[0].base_offset < findings.list_end:
        return
    findings.miss(findings.list_end, Offset(following.base_offset))


def _check_unlisted_ends(findings: Findings, found: list[Segment]) -> None:
    """Find holes between segments without a list: a complete index names the base offset of the next segment.

    An index that was made again from the batches of a compacted segment ends at the last batch that compaction left, so
    a log that was compacted is not checked.
    """
    checkpoint = findings.checkpoint
    if findings.is_listed or checkpoint is None or checkpoint.cleaned_offset > 0:
        return
    for segment, following in pairwise(found):
        end = segment.indexed_end()
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            findings.miss(Offset(segment.base_offset + end.relative_offset), Offset(following.base_offset))
