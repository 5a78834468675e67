"""Files of the delayed messages of segments: a new leader reads them in place of the records (`delay.segment_events`).

    head      mark 4 | version 4 | base offset 8 | end offset 8 | end position 8 | position of the last batch 8 |
              crc of its header 4 | crc of the content 4 | length of the content 8
    crc 4 of the head | content

A file covers its segment up to a committed offset: the whole of a closed segment, the first part of the active segment.
It is valid if the last batch that it covers is still at its position with the same header: two logs that share this
batch are equal below it. Waits for the disk: runs in a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.delay.events import events_of
from penstock.delay.segment_events import SegmentEvents
from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, crc_matches
from penstock.storage.batch_scan import read_batch, read_range
from penstock.storage.disk import Disk
from penstock.storage.index import IndexEntry
from penstock.storage.segment import DELAYS_SUFFIX, NO_TIMESTAMP, Segment
from penstock.storage.stray_files import TEMPORARY_SUFFIX

_MARK = 0x50444C31
_VERSION = 1
_HEAD = Struct("=IIqqqqIIq")
_CRC = Struct("=I")
_NO_BATCH = -1


class Covered(NamedTuple):
    """The part of a segment that a file covers."""

    end_offset: Offset
    position: int
    """Position in the segment after the last covered batch."""
    last_position: int = _NO_BATCH
    """Position of the last covered batch."""


class FiledEvents(NamedTuple):
    covered: Covered
    events: SegmentEvents


def read_covered(disk: Disk, segment: Segment) -> Covered | None:
    """The part of a segment that its file covers; None if it has no valid file. Only the head is read and checked."""
    found = _read_head(disk, segment)
    return None if found is None else found[0]


def read_delay_file(disk: Disk, segment: Segment) -> FiledEvents | None:
    """The events of a segment from its file; None if it has no valid file."""
    found = _read_head(disk, segment)
    if found is None:
        return None
    covered, content_crc, length = found
    file = disk.open(segment.derived_path(DELAYS_SUFFIX))
    try:
        content = file.pread(_HEAD.size + _CRC.size, length)
    finally:
        file.close()
    if len(content) != length or crc32c(content) != content_crc:
        segment.derived -= {DELAYS_SUFFIX}
        return None
    return FiledEvents(covered, SegmentEvents.unpack(memoryview(content)))


def _read_head(disk: Disk, segment: Segment) -> tuple[Covered, int, int] | None:
    """The covered part, and the CRC and length of the content; None if the segment has no file with a valid head."""
    if DELAYS_SUFFIX not in segment.derived:
        return None
    try:
        file = disk.open(segment.derived_path(DELAYS_SUFFIX))
    except FileNotFoundError:
        segment.derived -= {DELAYS_SUFFIX}
        return None
    try:
        head = file.pread(0, _HEAD.size + _CRC.size)
    finally:
        file.close()
    found = _parse_head(head, segment)
    if found is None:
        segment.derived -= {DELAYS_SUFFIX}
    return found


def _parse_head(head: bytes, segment: Segment) -> tuple[Covered, int, int] | None:
    if len(head) < _HEAD.size + _CRC.size or _CRC.unpack_from(head, _HEAD.size)[0] != crc32c(
        head[: _HEAD.size]
    ):
        return None
    mark, version, base, end_offset, position, last, batch_crc, content_crc, length = _HEAD.unpack_from(head)
    if (mark, version, base) != (_MARK, _VERSION, segment.base_offset) or position > segment.size:
        return None
    if last != _NO_BATCH and _header_crc(segment, last) != batch_crc:
        return None
    return Covered(Offset(end_offset), position, last), content_crc, length


def _header_crc(segment: Segment, position: int) -> int:
    try:
        return crc32c(read_range(segment.file, position, HEADER_SIZE, wait=True))
    except CorruptLog:
        return -1


@dataclass(slots=True)
class DelayFileJob:
    """Write the file of a segment, or extend it. `write` takes long and writes a temporary file; `place` renames it and
    must be called while no other job changes files of the log.
    """

    disk: Disk
    segment: Segment
    end: int
    """Position in bytes up to which the segment is read."""
    below: Offset
    """Offset below which records are committed; later records are not covered."""
    max_decompressed_bytes: int
    is_wanted: Callable[[], bool]
    covered: Covered | None = None

    @property
    def _path(self) -> str:
        return self.segment.derived_path(DELAYS_SUFFIX)

    @property
    def _temporary(self) -> str:
        return self._path + TEMPORARY_SUFFIX

    def write(self) -> bool:
        """Write the temporary file; False if the file is no longer wanted."""
        known = read_delay_file(self.disk, self.segment)
        if known is None:
            known = FiledEvents(Covered(Offset(self.segment.base_offset), 0), SegmentEvents())
        covered = self._read_on(known)
        if covered is None:
            return False
        self.covered = covered
        last = covered.last_position
        batch_crc = 0 if last == _NO_BATCH else _header_crc(self.segment, last)
        content = known.events.pack()
        head = _HEAD.pack(
            _MARK,
            _VERSION,
            self.segment.base_offset,
            covered.end_offset,
            covered.position,
            last,
            batch_crc,
            crc32c(content),
            len(content),
        )
        file = self.disk.open(self._temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(0, (head, _CRC.pack(crc32c(head)), content))
            file.sync()
        finally:
            file.close()
        return True

    def _read_on(self, known: FiledEvents) -> Covered | None:
        """Read the batches after the covered part, up to a damaged batch; None if the file is no longer wanted."""
        covered, events = known
        start = IndexEntry(covered.end_offset - self.segment.base_offset, covered.position, NO_TIMESTAMP)
        try:
            for position, header in self.segment.walk(self.end, start, wait=True):
                if not self.is_wanted():
                    return None
                batch = read_batch(self.segment.file, position, header)
                if header.next_offset > self.below or not crc_matches(batch, header):
                    break
                events.apply(events_of(batch, header, self.max_decompressed_bytes))
                covered = Covered(Offset(header.next_offset), position + header.size, position)
        except CorruptLog:
            pass  # the rest is read after a repair, or by a new leader
        return covered

    def place(self) -> Covered:
        assert self.covered is not None, "the file was written"
        self.disk.rename(self._temporary, self._path)
        self.disk.sync_dir(self._path.rpartition("/")[0])
        self.segment.derived |= {DELAYS_SUFFIX}
        return self.covered

    def discard(self) -> None:
        self.disk.remove(self._temporary)
