"""File of a derived index of a closed segment: immutable, beside the segment, rebuilt from the log if it is not valid.

    file      parts, one after the other: one part, but several for a large old segment
    part      head page | filter pages | entry pages
    page      content 4092 | crc 4, seeded with the segment's base offset and the identity of the kind
    head      magic 4 | version 2 | is last 1 | segment size 8 | position of the last batch 8 | crc of its header 4 |
              filter pages 4 | entry pages 4 | entries 8
    filter    Bloom filter of the sort keys, four bits for each key, all in the same page; absent if the sort keys are
              not hashes
    entries   170 entries (`derived.entries`), sorted; the last page is filled up with 0xff

Size and last batch identify the segment: two logs that share this batch are equal below it. The file is read page by
page, the CRC of each page is checked, and nothing is cached: the memory of a lookup does not depend on the number of
entries. Any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from struct import Struct
from typing import Protocol

from crc32c import crc32c

from penstock.errors import CorruptLog, StorageError
from penstock.records.batch import HEADER_SIZE
from penstock.storage.batch_scan import read_range
from penstock.storage.derived.entries import ENTRY_SIZE, PLACE, SORT_KEY_BYTES, IndexKind, RecordPlace
from penstock.storage.disk import File
from penstock.storage.file_cache import CachedFile, FileCache
from penstock.storage.segment import Segment

PAGE_BYTES = 4096
_CONTENT_BYTES = PAGE_BYTES - 4
_PAGE_ENTRIES = _CONTENT_BYTES // ENTRY_SIZE
_PAGE_CONTENT = _PAGE_ENTRIES * ENTRY_SIZE
_FILLING = b"\xff"
_VERSION = 1
_HEAD = Struct(">4sH?QQIIIQ")
_NO_BATCH = 2**64 - 1
_FILTER_BITS = _CONTENT_BYTES * 8
_BITS_PER_HASH = 12
_SHIFTS = (0, 15, 30, 45)
_SHIFT_MASK = 0x7FFF


class EntriesDamaged(StorageError):
    """An entry file is damaged or belongs to another segment. It has to be rebuilt from the log."""


class SortedPart(Protocol):
    """Entries of a segment in memory."""

    @property
    def count(self) -> int: ...

    @property
    def last_position(self) -> int:
        """Position of the last batch of the segment; -1 if the segment is empty."""

    def sorted_buckets(self) -> Iterator[list[bytes]]: ...


@dataclass(frozen=True, slots=True)
class _Part:
    filter_page: int
    filter_pages: int
    entry_pages: int
    entries: int

    @property
    def entry_page(self) -> int:
        return self.filter_page + self.filter_pages

    @property
    def end_page(self) -> int:
        return self.entry_page + self.entry_pages


class EntryFileWriter:
    """Writer of an entry file, part by part; waits for the disk."""

    def __init__(self, file: File, base_offset: int, kind: IndexKind) -> None:
        self._file = file
        self._kind = kind
        self._seed = _seed(base_offset, kind)
        self._parts: list[_Part] = []
        file.truncate(0)

    def add(self, entries: SortedPart) -> None:
        """Write the next part. Its offsets are above those of all parts before."""
        first = self._parts[-1].end_page if self._parts else 0
        filter_pages = (
            max(1, -(-entries.count * _BITS_PER_HASH // _FILTER_BITS)) if self._kind.is_hashed else 0
        )
        part = _Part(first + 1, filter_pages, -(-entries.count // _PAGE_ENTRIES), entries.count)
        filters = [bytearray(_CONTENT_BYTES) for _ in range(filter_pages)]
        page, rest = part.entry_page, b""
        for bucket in entries.sorted_buckets():
            if filters:
                _fill(filters, bucket)
            content = rest + b"".join(bucket)
            whole = len(content) // _PAGE_CONTENT
            self._write(page, [content[at * _PAGE_CONTENT : (at + 1) * _PAGE_CONTENT] for at in range(whole)])
            page, rest = page + whole, content[whole * _PAGE_CONTENT :]
        if rest:
            self._write(page, [rest.ljust(_PAGE_CONTENT, _FILLING)])
        self._write(part.filter_page, filters)
        self._parts.append(part)

    def finish(self, segment: Segment, last_position: int) -> None:
        """Write the heads and sync the file; the last batch of the segment begins at `last_position`."""
        batch = (_NO_BATCH, 0) if last_position < 0 else (last_position, _batch_crc(segment, last_position))
        for part in self._parts:
            is_last = part is self._parts[-1]
            sizes = part.filter_pages, part.entry_pages, part.entries
            head = _HEAD.pack(self._kind.magic, _VERSION, is_last, segment.size, *batch, *sizes)
            self._write(part.filter_page - 1, [head])
        self._file.sync()

    def _write(self, page: int, contents: Sequence[bytes | bytearray]) -> None:
        if contents:
            pages = (bytes(content).ljust(_CONTENT_BYTES, b"\x00") for content in contents)
            whole = b"".join(each + crc32c(each, self._seed).to_bytes(4, "big") for each in pages)
            self._file.pwrite(page * PAGE_BYTES, (whole,))


class EntryFile:
    """The entry file of a segment. EntriesDamaged if it does not fit the segment or a page is damaged."""

    __slots__ = ("_file", "_kind", "_parts", "_seed")

    def __init__(self, files: FileCache, segment: Segment, kind: IndexKind) -> None:
        self._file = CachedFile(files, segment.derived_path(kind.suffix))
        self._kind = kind
        self._seed = _seed(segment.base_offset, kind)
        self._parts = tuple(self._read_parts(segment))

    def close(self) -> None:
        self._file.discard()

    @property
    def count(self) -> int:
        """Number of entries."""
        return sum(part.entries for part in self._parts)

    def find(self, sort_key: bytes, from_offset: int) -> Iterator[RecordPlace]:
        """The entries with this sort key from an offset on, oldest first."""
        wanted = sort_key + PLACE.pack(from_offset, 0, 0, 0)
        for part in self._parts:
            if part.entries and (not part.filter_pages or self._may_have(part, sort_key)):
                for entry in self._scan(part, wanted):
                    if entry[:SORT_KEY_BYTES] != sort_key:
                        break
                    yield RecordPlace._make(PLACE.unpack_from(entry, SORT_KEY_BYTES))

    def scan(self, start: bytes) -> Iterator[bytes]:
        """All entries that are not below `start`, in order. `start` is an entry or the first bytes of one."""
        return merge(*(self._scan(part, start) for part in self._parts if part.entries))

    def _may_have(self, part: _Part, sort_key: bytes) -> bool:
        value = int.from_bytes(sort_key, "big")
        content = self._read(part.filter_page + value % part.filter_pages)
        return all(content[bit >> 3] >> (bit & 7) & 1 for bit in _bits(value))

    def _scan(self, part: _Part, start: bytes) -> Iterator[bytes]:
        pages = range(part.entry_page, part.end_page)
        # The last page that begins below `start`: the first entry to return is in it, or at the start of the next page.
        place = max(0, bisect_left(pages, start, key=lambda page: self._read(page)[:ENTRY_SIZE]) - 1)
        for page in pages[place:]:
            content = self._read(page)
            count = min(_PAGE_ENTRIES, part.entries - (page - part.entry_page) * _PAGE_ENTRIES)
            first = bisect_left(range(count), start, key=lambda at: _entry_at(content, at))
            for at in range(first, count):
                yield _entry_at(content, at)

    def _read_parts(self, segment: Segment) -> Iterator[_Part]:
        page, is_last = 0, False
        while not is_last:
            magic, version, is_last, size, position, crc, *sizes = _HEAD.unpack_from(self._read(page))
            if (magic, version, size) != (self._kind.magic, _VERSION, segment.size):
                raise EntriesDamaged
            if is_last and position != _NO_BATCH and _batch_crc(segment, position) != crc:
                raise EntriesDamaged
            part = _Part(page + 1, *sizes)
            yield part
            page = part.end_page

    def _read(self, page: int) -> bytes:
        content = self._file.get().pread(page * PAGE_BYTES, PAGE_BYTES)
        if len(content) < PAGE_BYTES:
            raise EntriesDamaged
        if (
            crc32c(memoryview(content)[:_CONTENT_BYTES], self._seed).to_bytes(4, "big")
            != content[_CONTENT_BYTES:]
        ):
            raise EntriesDamaged
        return content


def _seed(base_offset: int, kind: IndexKind) -> int:
    return crc32c(kind.identity, base_offset & 0xFFFFFFFF)


def _entry_at(content: bytes, place: int) -> bytes:
    return content[place * ENTRY_SIZE : (place + 1) * ENTRY_SIZE]


def _bits(value: int) -> Iterator[int]:
    return ((value >> shift & _SHIFT_MASK) % _FILTER_BITS for shift in _SHIFTS)


def _fill(filters: Sequence[bytearray], entries: list[bytes]) -> None:
    last = b""
    for entry in entries:
        sort_key = entry[:SORT_KEY_BYTES]
        if sort_key != last:
            last = sort_key
            value = int.from_bytes(sort_key, "big")
            content = filters[value % len(filters)]
            for bit in _bits(value):
                content[bit >> 3] |= 1 << (bit & 7)


def _batch_crc(segment: Segment, position: int) -> int:
    try:
        return crc32c(read_range(segment.file, position, HEADER_SIZE, wait=True))
    except CorruptLog:
        raise EntriesDamaged from None
