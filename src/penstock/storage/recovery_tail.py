"""The second part of a recovery: checking the end of a log, batch by batch, from the recovery mark on.

Bytes that were synced, and within one boot all bytes, are not truncated if valid batches follow, and segments after a
hole are not removed: missing records become damage of the log. After a power loss the unsynced end of the log is
truncated at the first incomplete or invalid batch. The remaining batches are written again and synced, because a failed
fsync may have left pages that look clean and are not on the disk.
"""

from __future__ import annotations

from penstock.errors import CorruptLog, TornBatch
from penstock.model import Offset
from penstock.records.batch import BatchHeader, crc_matches
from penstock.storage.batch_scan import read_batch
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.damage import DamagedRange
from penstock.storage.index import IndexEntry
from penstock.storage.recovery_findings import Findings
from penstock.storage.recovery_start import mark_at, segment_from_mark
from penstock.storage.replay import Replay
from penstock.storage.segment import UNREACHABLE_OFFSET, Segment

_REWRITE_BYTES = 1024 * 1024


class TailCheck:
    def __init__(self, findings: Findings, replay: Replay, index_interval_bytes: int) -> None:
        self._findings = findings
        self._replay = replay
        self._index_interval_bytes = index_interval_bytes

    def run(self, segments: list[Segment], found: list[Segment], end_offset: Offset) -> Offset:
        """Check the last of `segments`, then check and add the segments of `found` after it, until the log ends.

        Return the log end offset. `end_offset` is the offset of the recovery mark.
        """
        findings = self._findings
        segment, file_size = segments[-1], found[len(segments) - 1].size
        end_offset = self._listed_end(segment, self._check_segment(segment, file_size, end_offset))
        while len(segments) < len(found):
            following = found[len(segments)]
            is_torn = segment.size < file_size
            if following.base_offset < end_offset and not is_torn:
                findings.remove(
                    [found.pop(len(segments))], f"the segment before it has offsets up to {end_offset}"
                )
                continue
            if self._had_between(end_offset, following.base_offset, is_torn=is_torn):
                findings.miss(end_offset, Offset(following.base_offset))
            elif following.base_offset == end_offset:
                self._truncate(segment, file_size)  # a failed append left these bytes
            elif is_torn or not findings.may_have_gaps:
                break
            if segment.indexed_end() is None:
                segment.close(end_offset)
            segment, file_size, end_offset = self._take_on(following, end_offset)
            segments.append(segment)
        kept_to = findings.kept_to
        if end_offset >= kept_to:
            self._truncate(segment, file_size)
        findings.remove(found[len(segments) :], f"the log before it ends at offset {end_offset}")
        if end_offset < kept_to:
            findings.miss(end_offset, kept_to)
            segments.append(self._start_segment(segment, end_offset, kept_to))
        return max(end_offset, kept_to)

    # --- segments

    def _had_between(self, end_offset: Offset, next_offset: int, *, is_torn: bool) -> bool:
        """True if records between `end_offset` and the next segment are lost; False if the gap may be no loss."""
        findings = self._findings
        if next_offset <= end_offset:
            return False
        if findings.is_same_boot:
            return is_torn or not findings.may_have_gaps
        return next_offset <= findings.kept_to and not findings.may_have_gaps

    def _start_segment(self, before: Segment, end_offset: Offset, base_offset: Offset) -> Segment:
        """Create an empty segment after lost records, so that their offsets are not used again."""
        findings = self._findings
        if before.indexed_end() is None:
            before.close(end_offset)
        segment = Segment(findings.files, findings.directory, base_offset, created_ms=findings.now_ms)
        findings.disk.open(segment.log_file.path, create=True)
        findings.has_new_names = True
        return segment

    def _take_on(self, found: Segment, end_offset: Offset) -> tuple[Segment, int, Offset]:
        """Check a further segment; return it with the size of its file and the log end after it."""
        findings = self._findings
        findings.has_new_names = True
        end = found.indexed_end()
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            segment = segment_from_mark(findings, found, mark_at(findings, found, end))
            end_offset = Offset(found.base_offset + end.relative_offset)
            self._replay.replay_segment(segment, Offset(found.base_offset), end_offset)
            return segment, found.size, self._listed_end(segment, end_offset)
        segment = segment_from_mark(findings, found, RecoveryMark(created_ms=findings.now_ms))
        end_offset = max(end_offset, Offset(found.base_offset))
        end_offset = self._check_segment(segment, found.size, end_offset)
        return segment, found.size, self._listed_end(segment, end_offset)

    def _listed_end(self, segment: Segment, end_offset: Offset) -> Offset:
        """The end offset of a segment, raised to that in the list: compaction may have removed the last records."""
        for entry in reversed(self._findings.closed.entries):
            if entry.base_offset <= segment.base_offset:
                is_whole = entry.base_offset == segment.base_offset and entry.size == segment.size
                return max(end_offset, Offset(entry.end_offset)) if is_whole else end_offset
        return end_offset

    def _truncate(self, segment: Segment, file_size: int) -> None:
        """Truncate the file of a segment to the accepted batches."""
        if segment.size < file_size:
            self._findings.report_loss()
            self._findings.truncated_bytes += file_size - segment.size
            segment.trim_index(self._findings.disk)
            segment.file.truncate(segment.size)
            segment.file.sync()

    # --- batches

    def _check_segment(self, segment: Segment, file_size: int, next_offset: Offset) -> Offset:
        """Accept the valid batches after the segment's size; then write them again and sync. Return the log end."""
        start = segment.size
        if file_size == start:
            return next_offset
        if not segment.index.stored:
            segment.trim_index(self._findings.disk)
        while segment.size < file_size:
            here = IndexEntry(next_offset - segment.base_offset, segment.size, segment.max_timestamp)
            try:
                for position, header in segment.walk(file_size, here, wait=True):
                    self._check_batch(segment, position, header)
                    self._accept(segment, position, header)
                    next_offset = header.next_offset
            except CorruptLog as problem:
                behind = self._find_behind(segment, file_size, next_offset, problem)
                if behind is None:
                    break
                next_offset = behind
        self._write_again(segment, start)
        return next_offset

    def _find_behind(
        self, segment: Segment, file_size: int, next_offset: Offset, problem: CorruptLog
    ) -> Offset | None:
        """Record damage and step over it; return the offset of the next valid batch, or None if the log ends here."""
        findings = self._findings
        here = IndexEntry(next_offset - segment.base_offset, segment.size, segment.max_timestamp)
        behind = segment.after_damage(here, file_size) if self._was_whole(problem, next_offset) else None
        if behind is None:
            findings.problems.append(f"{segment.log_file.path} ends at {segment.size}: {problem}")
            findings.torn_writes += isinstance(problem, TornBatch) and next_offset >= findings.committed
            return None
        findings.problems.append(f"{segment.log_file.path} is damaged at {segment.size}: {problem}")
        self._step_over(segment, here, behind)
        behind_offset = Offset(segment.base_offset + behind.relative_offset)
        findings.damage.append(DamagedRange(next_offset, behind_offset, str(problem)))
        return behind_offset

    def _was_whole(self, problem: CorruptLog, offset: Offset) -> bool:
        """True if the batch at `offset` was complete once: it was synced, or written in this boot and is not torn."""
        findings = self._findings
        return offset < findings.kept_to or (findings.is_same_boot and not isinstance(problem, TornBatch))

    @staticmethod
    def _step_over(segment: Segment, damage: IndexEntry, behind: IndexEntry) -> None:
        """Keep the damaged bytes in the segment. The index gets an entry before and one after them, as if rebuilt."""
        segment.index.add(*damage)
        segment.index.add(*behind)
        segment.size = segment.synced_size = segment.indexed_size = behind.position

    def _check_batch(self, segment: Segment, position: int, header: BatchHeader) -> None:
        latest = self._replay.epochs.latest
        if header.leader_epoch < latest and header.base_offset >= self._findings.committed:
            raise CorruptLog(f"leader epoch {header.leader_epoch} follows the higher epoch {latest}")
        if not crc_matches(read_batch(segment.file, position, header), header):
            raise CorruptLog(f"the CRC of the batch at position {position} does not match")

    def _accept(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if position == 0 and 0 <= header.max_timestamp < segment.created_ms:
            segment.created_ms = header.max_timestamp
        if position - segment.indexed_size >= self._index_interval_bytes:
            segment.add_index_entry(header.base_offset, position)
        segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
        segment.size = segment.synced_size = position + header.size
        self._replay.apply(segment, position, header)

    def _write_again(self, segment: Segment, start: int) -> None:
        file = segment.file
        for position in range(start, segment.size, _REWRITE_BYTES):
            content = file.pread(position, min(_REWRITE_BYTES, segment.size - position))
            file.pwrite(position, (content,))
        file.sync()
        self._findings.checked_bytes += segment.size - start
        self._findings.has_new_names = True
