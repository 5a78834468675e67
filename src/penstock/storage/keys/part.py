"""Key entries of a segment in memory: of the active segment, and of a closed one whose file is not written yet.

Entries lie in buckets by the first byte of their hash, in the order of offsets, packed: 24 bytes a record and no
objects. One thread at a time adds; any thread may look up meanwhile and may or may not see the newest entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from penstock.storage.keys.entries import ENTRY_SIZE, HASH_BYTES, PLACE, RecordPlace

_BUCKETS = 256


class KeyPart:
    __slots__ = ("_buckets", "count", "last_position", "position")

    def __init__(self) -> None:
        self.position = 0
        """Position in the segment up to which its batches are in this part."""
        self.count = 0
        self.last_position = -1
        """Position of the last of these batches; -1 without any."""
        self._buckets = [bytearray() for _ in range(_BUCKETS)]

    def add(self, entries: list[bytes], position: int, size: int) -> None:
        """Add the entries of the next batch, which has `size` bytes from `position` on."""
        buckets = self._buckets
        for entry in entries:
            buckets[entry[0]] += entry
        self.count += len(entries)
        self.last_position = position
        self.position = position + size

    def clear(self) -> None:
        """Forget the entries, but not the position."""
        self.count = 0
        self._buckets = [bytearray() for _ in range(_BUCKETS)]

    def find(self, key_hash: bytes, from_offset: int) -> Iterator[RecordPlace]:
        """The entries with this hash from an offset on, oldest first."""
        bucket = self._buckets[key_hash[0]]
        count = len(bucket) // ENTRY_SIZE
        first = bisect_left(range(count), from_offset, key=lambda place: _offset_at(bucket, place))
        at = bucket.find(key_hash, first * ENTRY_SIZE)
        while at >= 0:
            if at % ENTRY_SIZE:
                at += 1
            else:
                yield RecordPlace._make(PLACE.unpack_from(bucket, at + HASH_BYTES))
                at += ENTRY_SIZE
            at = bucket.find(key_hash, at)

    def sorted_buckets(self) -> Iterator[list[bytes]]:
        """All entries in order, sorted one bucket at a time: sorting all at once would block other threads."""
        for content in map(bytes, self._buckets):
            yield sorted([content[at : at + ENTRY_SIZE] for at in range(0, len(content), ENTRY_SIZE)])


def _offset_at(bucket: bytearray, place: int) -> int:
    start = place * ENTRY_SIZE
    return int.from_bytes(bucket[start + HASH_BYTES : start + HASH_BYTES + 4], "big")
