"""Entries of a segment in memory: of the active segment, and of a closed segment whose file is not written yet.

Entries are packed into byte arrays, 24 bytes each: one array for each first byte of the sort key, in the order of
offsets. One thread at a time adds entries; any thread may look up meanwhile and may or may not see the newest entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from penstock.storage.derived.entries import ENTRY_SIZE, PLACE, SORT_KEY_BYTES, RecordPlace

_BUCKETS = 256
_SORTED_AT_ONCE = 1 << 14


class EntryPart:
    __slots__ = ("_buckets", "count", "last_position", "position")

    def __init__(self) -> None:
        self.position = 0
        """Position in the segment after the last batch that was read into this part."""
        self.count = 0
        self.last_position = -1
        """Position of the last batch that was read into this part; -1 before the first."""
        self._buckets = [bytearray() for _ in range(_BUCKETS)]

    def add(self, entries: list[bytes], position: int, size: int) -> None:
        """Add the entries of the next batch, which is at `position` and has `size` bytes."""
        buckets = self._buckets
        for entry in entries:
            buckets[entry[0]] += entry
        self.count += len(entries)
        self.last_position = position
        self.position = position + size

    def clear(self) -> None:
        """Drop the entries but keep the position."""
        self.count = 0
        self._buckets = [bytearray() for _ in range(_BUCKETS)]

    def find(self, sort_key: bytes, from_offset: int) -> Iterator[RecordPlace]:
        """The entries with this sort key from an offset on, oldest first."""
        bucket = self._buckets[sort_key[0]]
        count = len(bucket) // ENTRY_SIZE
        first = bisect_left(range(count), from_offset, key=lambda place: _offset_at(bucket, place))
        at = bucket.find(sort_key, first * ENTRY_SIZE)
        while at >= 0:
            if at % ENTRY_SIZE:
                at += 1
            else:
                yield RecordPlace._make(PLACE.unpack_from(bucket, at + SORT_KEY_BYTES))
                at += ENTRY_SIZE
            at = bucket.find(sort_key, at)

    def sorted_buckets(self) -> Iterator[list[bytes]]:
        """All entries in order. At most `_SORTED_AT_ONCE` are sorted at once, because sorting blocks other threads."""
        for content in map(bytes, self._buckets):
            chunks = [
                sorted(content[at : at + ENTRY_SIZE] for at in range(start, end, ENTRY_SIZE))
                for start, end in _chunks(len(content))
            ]
            if len(chunks) == 1:
                yield chunks[0]
            else:
                merged = merge(*chunks)
                while bucket := list(islice(merged, _SORTED_AT_ONCE)):
                    yield bucket


def _chunks(size: int) -> Iterator[tuple[int, int]]:
    step = _SORTED_AT_ONCE * ENTRY_SIZE
    return ((start, min(start + step, size)) for start in range(0, size, step))


def _offset_at(bucket: bytearray, place: int) -> int:
    start = place * ENTRY_SIZE
    return int.from_bytes(bucket[start + SORT_KEY_BYTES : start + SORT_KEY_BYTES + 4], "big")
