"""The first part of a recovery: find the segments of a log, and the position from which they have to be checked.

Files are compared with the list of closed segments and with the checkpoint; of batches only the first of a suspicious
file is read. A segment with a complete index needs no check, because indexes are completed after the log was synced.
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
    """Find the segments that belong to the log, in order. Other segments are removed or set aside."""
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
    """Find the first segment to check: return its index in `found`, and the recovery mark to check from."""
    place, mark = _choose_start(findings, found)
    _check_chain(findings, found[: place + 1])
    _check_unlisted_ends(findings, found[: place + 1])
    return place, mark


def segment_from_mark(findings: Findings, found: Segment, mark: RecoveryMark) -> Segment:
    """The segment with the size that it had at the mark. Its size grows again while the tail is checked."""
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
    """A recovery mark at the end of the last segment, for a log of complete segments with nothing left to check."""
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
    """Finish an interrupted deletion: remove the segments below the log start. There may be holes between them."""
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
    """Set aside unlisted files whose first batch belongs to a later segment, and record their own records as lost.

    A segment ends where the next one begins, so another file must have been put in place of the written one.
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
    """True if the first batch of a file is valid and its base offset is at or above `offset`."""
    first = first_batch(segment)
    return first is not None and first.base_offset >= offset


def _is_unproven(findings: Findings, first: Segment, snapshots: tuple[Offset, ...]) -> bool:
    """True if segments before the first one are missing because a power loss reverted the creation of their names.

    Segments become durable in order, so nothing of the log was durable then. This is not assumed if a snapshot, the
    checkpoint or the list proves that the missing records were deleted or were durable, nor without a power loss. An
    earlier version named the first segment of a follower after its first batch, which may be above the log start in a
    compacted log: after a power loss it is unknown if such a log is complete, and the offsets before count as lost.
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

    The file may have been closed and compacted after the checkpoint file was written: compaction waits until the mark
    has moved beyond the segment, but not until that mark is in the file. It may even have the size at the mark again.
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
    """Record the hole, if any, between the end of the list and the next segment."""
    following = next((each for each in found if each.base_offset >= findings.list_end), None)
    if following is None or not findings.is_listed:
        return
    if not findings.closed.entries and found[0].base_offset < findings.list_end:
        return
    findings.miss(findings.list_end, Offset(following.base_offset))


def _check_unlisted_ends(findings: Findings, found: list[Segment]) -> None:
    """Record holes between segments of a log without a list, where a complete index ends at the next base offset.

    A compacted log is not checked: an index that was rebuilt from a compacted segment ends at the last remaining batch.
    """
    checkpoint = findings.checkpoint
    if findings.is_listed or checkpoint is None or checkpoint.cleaned_offset > 0:
        return
    for segment, following in pairwise(found):
        end = segment.indexed_end()
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            findings.miss(Offset(segment.base_offset + end.relative_offset), Offset(following.base_offset))
