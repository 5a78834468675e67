"""Comparison of a log's closed segments with their list at start, to find missing, shortened and replaced files.

A file whose size, inode and modification time equal those in the list is not opened. All functions wait for the disk.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.storage.batch_scan import read_batch
from penstock.storage.closed_segments import LOST, ClosedSegment, ClosedSegments, first_crc
from penstock.storage.damage import DamagedRange
from penstock.storage.disk import Disk, FileStatus
from penstock.storage.segment import Segment
from penstock.storage.stray_files import DAMAGED_SUFFIX

LOST_REASON = "records that were stored are missing"


class ClosedCheck:
    """The check of one log. `run` returns the readable segments; the attributes hold the findings."""

    def __init__(self, disk: Disk, closed: ClosedSegments, log_start_offset: Offset) -> None:
        self.closed = closed
        """The list, with the present inodes and modification times of files that proved valid."""
        self.damage: list[DamagedRange] = []
        self.is_replaced = False
        """True if a file was restored from a copy: it has another inode than in the list but the same first batch."""
        self._disk = disk
        self._log_start_offset = log_start_offset

    def run(self, found: list[tuple[Segment, FileStatus]]) -> list[Segment]:
        files = {segment.base_offset: (segment, status) for segment, status in found}
        refreshed = [entry for each in self.closed.entries if (entry := self._check(each, files)) is not None]
        if refreshed:
            self.closed = self.closed.extended(refreshed)
        return [segment for segment, _ in found if segment.base_offset in files]

    def _check(
        self, entry: ClosedSegment, files: dict[int, tuple[Segment, FileStatus]]
    ) -> ClosedSegment | None:
        """Compare one entry with its file; return an updated entry if the file is valid and its inode or modification
        time has changed.
        """
        if entry.end_offset <= self._log_start_offset or not (entry.has_file or entry.size == LOST):
            return None
        if entry.size == LOST:
            self._add(entry.base_offset, entry, LOST_REASON)
            return None
        if entry.base_offset not in files:
            self._add(entry.base_offset, entry, "the segment file is missing")
            return None
        segment, status = files[entry.base_offset]
        if (status.size, status.inode, status.modified_ns) == (entry.size, entry.inode, entry.modified):
            return None
        if not self._is_the_file(segment, entry):
            self._add(entry.base_offset, entry, "the segment file holds other records than were written")
            set_aside(self._disk, segment)
            del files[entry.base_offset]
            return None
        self.is_replaced = self.is_replaced or status.inode != entry.inode
        if status.size < entry.size:
            end_offset = self._shorten(segment)
            self._add(end_offset, entry, f"the segment file has {status.size} of {entry.size} bytes")
            return None
        segment.size = segment.synced_size = segment.indexed_size = entry.size
        if status.size > entry.size:
            return None
        return entry._replace(inode=status.inode, modified=status.modified_ns)

    def _add(self, base_offset: int, entry: ClosedSegment, reason: str) -> None:
        if base_offset < entry.end_offset:
            self.damage.append(DamagedRange(Offset(base_offset), Offset(entry.end_offset), reason))

    @staticmethod
    def _is_the_file(segment: Segment, entry: ClosedSegment) -> bool:
        """True if the first batch is the listed one or is damaged; damage is left to readers and the scrub."""
        if segment.size < HEADER_SIZE or entry.size < HEADER_SIZE or first_crc(segment) == entry.first_crc:
            return True
        return first_batch(segment) is None

    @staticmethod
    def _shorten(segment: Segment) -> int:
        """Limit the segment to its complete batches; return the offset after the last one."""
        position, end_offset = 0, segment.base_offset
        with suppress(CorruptLog):
            for place, header in segment.walk(segment.size, wait=True):
                position, end_offset = place + header.size, header.next_offset
        segment.size = segment.synced_size = segment.indexed_size = position
        return end_offset


def first_batch(segment: Segment) -> BatchHeader | None:
    """The header of the first batch of a file; None unless the file begins with a complete batch with a valid CRC."""
    if segment.size < HEADER_SIZE:
        return None
    header = read_header(segment.file.pread(0, HEADER_SIZE))
    is_framed = header.magic == MAGIC and HEADER_SIZE <= header.size <= segment.size
    return header if is_framed and crc_matches(read_batch(segment.file, 0, header), header) else None


def set_aside(disk: Disk, segment: Segment) -> None:
    """Rename a segment file that does not hold the records of this segment, and remove its indexes."""
    path = segment.log_file.path
    segment.log_file.discard()
    segment.index.file.discard()
    disk.rename(path, path + DAMAGED_SUFFIX)
    disk.remove(segment.index.file.path)
    segment.remove_derived(disk)
