"""Sparse index of a segment: from an offset or a time to the position at which a scan starts.

    relative offset 4 | position 4 | max timestamp 8 | crc 4             little endian, every entry 20 bytes

An entry is a boundary between two batches: batches before `position` have offsets below `base + relative offset` and
timestamps up to `max timestamp`; batches from `position` on have higher offsets. The index of a closed segment ends
with the boundary at the end of its log file. New entries are in memory until a checkpoint has written them; a crash may
lose or keep them, because recovery drops all entries above its starting point. The CRC is seeded with the base offset,
so that a damaged index, or the index of another segment, is noticed when an entry is used; the index is then rebuilt
from the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import WouldBlock
from penstock.storage.file_cache import CachedFile

_BODY = Struct("<IIq")
_ENTRY = Struct("<IIqI")
ENTRY_SIZE = _ENTRY.size
_BLOCK_ENTRIES = 32


class IndexEntry(NamedTuple):
    relative_offset: int
    position: int
    max_timestamp: int


FIRST_ENTRY = IndexEntry(0, 0, -1)
RELATIVE_OFFSET, POSITION, MAX_TIMESTAMP = 0, 1, 2

_Columns = tuple["array[int]", "array[int]", "array[int]"]


class IndexDamaged(Exception):
    """The stored index cannot be trusted and has to be rebuilt from the log."""


def encode_entries(base_offset: int, entries: Iterable[tuple[int, int, int]]) -> bytes:
    seed = base_offset & 0xFFFFFFFF
    bodies = (_BODY.pack(*entry) for entry in entries)
    return b"".join(body + crc32c(body, seed).to_bytes(4, "little") for body in bodies)


def decode_entry(base_offset: int, content: bytes, position: int = 0) -> IndexEntry:
    *fields, crc = _ENTRY.unpack_from(content, position)
    if crc32c(content[position : position + _BODY.size], base_offset & 0xFFFFFFFF) != crc:
        raise IndexDamaged
    return IndexEntry(*fields)


class SegmentIndex:
    """The index of one segment. Entries are added and marked as saved on the loop thread; any thread may look up.

    `stored` is the number of entries in the file; None if the file was not read since the start. `repaired` is the
    content of a rebuilt index, used in place of the file until a checkpoint has written it.
    """

    __slots__ = ("_base_offset", "_columns", "file", "repaired", "stored")

    def __init__(self, base_offset: int, file: CachedFile, stored: int | None) -> None:
        self._base_offset = base_offset
        self.file = file
        self.stored = stored
        self.repaired: bytes | None = None
        self._columns: _Columns | None = None

    def add(self, relative_offset: int, position: int, max_timestamp: int) -> None:
        columns = self._columns
        if columns is None:
            columns = self._columns = (array("I"), array("I"), array("q"))
        # Readers search the last column first and then use the same place of the others, which must exist by then.
        columns[POSITION].append(position)
        columns[MAX_TIMESTAMP].append(max_timestamp)
        columns[RELATIVE_OFFSET].append(relative_offset)

    def unsaved(self) -> list[IndexEntry]:
        columns = self._columns
        return [] if columns is None else [IndexEntry(*entry) for entry in zip(*columns, strict=True)]

    @property
    def unsaved_from(self) -> int | None:
        """Position of the first entry that is only in memory."""
        columns = self._columns
        return columns[POSITION][0] if columns else None

    def repair(self, content: bytes) -> None:
        """Use `content`, rebuilt from the log, in place of the entries in the file."""
        self.repaired = content
        self.stored = len(content) // ENTRY_SIZE

    def saved(self, count: int, stored: int) -> None:
        """Record that a checkpoint wrote the oldest `count` entries in memory to the file, which now has `stored`."""
        self.stored = stored  # before the columns, because readers look at the columns first
        self.repaired = None
        columns = self._columns
        if columns is not None:
            rest = (columns[0][count:], columns[1][count:], columns[2][count:])
            self._columns = rest if rest[0] else None

    def truncate(self, position: int) -> None:
        """Drop every entry above `position`; the file is not changed."""
        columns = self._columns
        if columns is not None:
            keep = bisect_left(columns[POSITION], position + 1)
            if keep:
                self._columns = (columns[0][:keep], columns[1][:keep], columns[2][:keep])
                return
            self._columns = None
        self.stored = self._count_stored(POSITION, position + 1, wait=True)
        if self.repaired is not None:
            self.repaired = self.repaired[: self.stored * ENTRY_SIZE]

    def find(self, field: int, limit: int, wait: bool) -> IndexEntry:
        """The last entry whose `field` is below `limit`; may raise IndexDamaged or WouldBlock."""
        columns = self._columns
        if columns is not None:
            place = bisect_left(columns[field], limit, 0, len(columns[RELATIVE_OFFSET])) - 1
            if place >= 0:
                return IndexEntry(columns[0][place], columns[1][place], columns[2][place])
        place = self._count_stored(field, limit, wait) - 1
        return FIRST_ENTRY if place < 0 else self._read(place, 1, wait)[0]

    def last(self, wait: bool) -> IndexEntry:
        columns = self._columns
        if columns is not None:
            return IndexEntry(columns[0][-1], columns[1][-1], columns[2][-1])
        stored = self._stored()
        return self._read(stored - 1, 1, wait)[0] if stored else FIRST_ENTRY

    def _count_stored(self, field: int, limit: int, wait: bool) -> int:
        """Number of stored entries whose `field` is below `limit`, by binary search. IndexDamaged if entries that it
        reads are out of order.
        """
        low, high = 0, self._stored()
        if high == 0:
            return 0
        end = high
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._read(middle, 1, wait)[0][field] < limit:
                low = middle
            else:
                high = middle
        first = max(low - 1, 0)
        entries = self._read(first, min(high + 1, end) - first, wait)
        keys = [entry[field] for entry in entries]
        if keys != sorted(keys):
            raise IndexDamaged
        return first + bisect_left(keys, limit)

    def _stored(self) -> int:
        stored = self.stored
        if stored is None:
            stored = self.stored = self._learn_stored()
        return stored

    def _learn_stored(self) -> int:
        try:
            count, rest = divmod(self.file.get().size(), ENTRY_SIZE)
        except FileNotFoundError:
            raise IndexDamaged from None
        if rest:
            raise IndexDamaged
        return count

    def _read(self, start: int, count: int, wait: bool) -> list[IndexEntry]:
        content = self._read_stored(start * ENTRY_SIZE, count * ENTRY_SIZE, wait)
        if len(content) < count * ENTRY_SIZE:
            raise IndexDamaged
        return [
            decode_entry(self._base_offset, content, place) for place in range(0, len(content), ENTRY_SIZE)
        ]

    def _read_stored(self, position: int, length: int, wait: bool) -> bytes:
        if self.repaired is not None:
            return self.repaired[position : position + length]
        try:
            file = self.file.get()
        except FileNotFoundError:
            raise IndexDamaged from None
        content = file.pread(position, length) if wait else file.pread_cached(position, length)
        if content is None:
            raise WouldBlock
        return content
