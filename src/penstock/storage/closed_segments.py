"""The list of a log's closed segments, in a small file, so that a missing, shortened or replaced segment file is
noticed.

    magic 4 | version 2 | start offset 8 | entries 4 |
    each entry: base offset 8, end offset 8, size 8, inode 8, modified 8, CRC of the first batch 4 |
    crc32c 4                                                                               little endian

The file `closed-segments` lies beside the segments. Its entries are in order and cover every offset from the start
offset up to the active segment: the end offset of an entry is the base offset of the next segment. An entry without a
file has a negative size: NO_RECORDS for offsets that compaction removed before the log was written here, LOST for
records that recovery found missing.

A list is written after its segments were synced. It is durable before segments are removed, truncated or replaced, so
that it never names a file that was removed on purpose. After a power loss an older list may be back, which names fewer
segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import StorageError
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.storage.disk import SYNC_ALL_ABOVE, Disk, File
from penstock.storage.segment import Segment

CLOSED_SEGMENTS_FILE = "closed-segments"
NO_RECORDS = -1
LOST = -2
_START = Offset(0)
_MAGIC = b"PCLS"
_VERSION = 1
_HEAD = Struct("<4sHqI")
_ENTRY = Struct("<qqqQqI")
_CRC = Struct("<I")


class ClosedSegment(NamedTuple):
    base_offset: int
    end_offset: int
    size: int
    inode: int = 0
    modified: int = 0
    """Modification time in nanoseconds. A start opens and checks a file whose inode or time differs from the list."""
    first_crc: int = 0
    """CRC in the header of the first batch, which identifies the file; 0 if the segment is empty."""

    @property
    def has_file(self) -> bool:
        return self.size >= 0


@dataclass(frozen=True, slots=True)
class ClosedSegments:
    start_offset: Offset = _START
    """Offset of the first entry: no files are expected below it."""
    entries: tuple[ClosedSegment, ...] = ()

    @property
    def end_offset(self) -> Offset:
        """Base offset of the first segment that is not listed."""
        return Offset(self.entries[-1].end_offset) if self.entries else self.start_offset

    def extended(self, entries: Iterable[ClosedSegment]) -> ClosedSegments:
        """The list with new entries, which replace all entries that they overlap."""
        added = sorted(entries)
        if added and added[0].base_offset >= self.end_offset:
            return replace(self, entries=(*self.entries, *added))
        kept = [
            old
            for old in self.entries
            if not any(new.base_offset < old.end_offset and old.base_offset < new.end_offset for new in added)
        ]
        return replace(self, entries=tuple(sorted((*kept, *added))))

    def without(self, base_offset: int, end_offset: int) -> ClosedSegments:
        """The list without the segments that begin in [base_offset, end_offset)."""
        return replace(
            self,
            entries=tuple(each for each in self.entries if not base_offset <= each.base_offset < end_offset),
        )

    def starting_at(self, offset: int) -> ClosedSegments:
        """The list after the segments below this base offset were deleted."""
        return ClosedSegments(
            Offset(offset), tuple(each for each in self.entries if each.base_offset >= offset)
        )

    def ending_at(self, offset: int) -> ClosedSegments:
        """The list after a truncation to `offset`: later entries are dropped, an entry without a file is shortened."""
        kept = [each for each in self.entries if each.end_offset <= offset or not each.has_file]
        cut = (each._replace(end_offset=min(each.end_offset, offset)) for each in kept)
        return replace(self, entries=tuple(each for each in cut if each.base_offset < each.end_offset))

    def encode(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, _VERSION, self.start_offset, len(self.entries))]
        parts += (_ENTRY.pack(*entry) for entry in self.entries)
        content = b"".join(parts)
        return content + _CRC.pack(crc32c(content))

    @classmethod
    def decode(cls, content: bytes) -> ClosedSegments:
        """Decode a list; StorageError if the bytes are not one."""
        try:
            magic, version, start_offset, count = _HEAD.unpack_from(content)
            (crc,) = _CRC.unpack(content[-_CRC.size :])
            body = content[_HEAD.size : -_CRC.size]
            is_whole = crc32c(content[: -_CRC.size]) == crc and len(body) == count * _ENTRY.size
        except error:
            raise StorageError(f"{CLOSED_SEGMENTS_FILE} is too short") from None
        if magic != _MAGIC or not is_whole:
            raise StorageError(f"{CLOSED_SEGMENTS_FILE} is damaged")
        if version != _VERSION:
            raise StorageError(f"{CLOSED_SEGMENTS_FILE} has version {version}, only {_VERSION} is supported")
        return cls(Offset(start_offset), tuple(ClosedSegment(*each) for each in _ENTRY.iter_unpack(body)))


# --- files


def list_path(directory: str) -> str:
    return f"{directory}/{CLOSED_SEGMENTS_FILE}"


def describe(disk: Disk, segment: Segment, end_offset: int) -> ClosedSegment:
    """Make the list entry of a segment that was closed and synced. Waits for the disk."""
    status = disk.status(segment.log_file.path)
    crc = first_crc(segment)
    return ClosedSegment(segment.base_offset, end_offset, segment.size, status.inode, status.modified_ns, crc)


def describe_file(disk: Disk, path: str, base_offset: int, end_offset: int) -> ClosedSegment:
    """The entry of a segment file that does not have its name yet. Waits for the disk."""
    status = disk.status(path)
    file = disk.open(path)
    try:
        content = file.pread(0, HEADER_SIZE)
    finally:
        file.close()
    crc = read_header(content).crc if len(content) == HEADER_SIZE else 0
    return ClosedSegment(base_offset, end_offset, status.size, status.inode, status.modified_ns, crc)


def first_crc(segment: Segment) -> int:
    if segment.size < HEADER_SIZE:
        return 0
    content = segment.file.pread(0, HEADER_SIZE)
    return read_header(content).crc if len(content) == HEADER_SIZE else 0


def read_list(disk: Disk, directory: str) -> ClosedSegments:
    """Read the list; FileNotFoundError if an earlier version wrote the log, StorageError if the list is damaged."""
    return ClosedSegments.decode(disk.read(list_path(directory)))


def write_list(disk: Disk, directory: str, closed: ClosedSegments) -> None:
    """Write the list durably."""
    disk.replace(list_path(directory), closed.encode())


def prepare_list(disk: Disk, directory: str, closed: ClosedSegments) -> File:
    """Write a list to a temporary file; after the caller has synced the file, `publish_list` puts it in place."""
    file = disk.open(list_path(directory) + ".new.tmp", create=True)
    file.truncate(0)
    file.pwrite(0, (closed.encode(),))
    return file


def publish_list(disk: Disk, directory: str) -> None:
    disk.rename(list_path(directory) + ".new.tmp", list_path(directory))


def write_lists(disk: Disk, lists: Sequence[tuple[str, ClosedSegments]]) -> None:
    """Write the lists of many logs durably, with few syncs."""
    if len(lists) <= SYNC_ALL_ABOVE:
        for directory, closed in lists:
            write_list(disk, directory, closed)
        return
    for directory, closed in lists:
        prepare_list(disk, directory, closed).close()
    if not disk.sync_all():
        for directory, _ in lists:
            disk.open(list_path(directory) + ".new.tmp").sync()
    for directory, _ in lists:
        publish_list(disk, directory)
    if not disk.sync_all():
        for directory, _ in lists:
            disk.sync_dir(directory)
