"""Entries of matching records: of a range of a segment in memory, or of a closed segment in a file.

The entries have the format of `derived.entries` with an empty sort key and are in the order of offsets. Each control
batch has an entry too, because every reader receives it. Runs in a thread pool, one job at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from penstock.storage.derived.entries import ENTRY_SIZE, PLACE, SORT_KEY_BYTES
from penstock.storage.derived.file import EntryFile

ENTRY = Struct(">8xIIII")
"""Relative offset, position, place and CRC of an entry."""
NO_SORT_KEY = bytes(SORT_KEY_BYTES)
CONTROL_PLACE = 0xFFFFFFFF
"""Value of the place in the entry of a control batch."""
MAX_ENTRIES = 4096
"""Number of entries that are taken at once, except that the last batch is completed."""
_BUCKET_ENTRIES = 1 << 14


class TakenEntries(NamedTuple):
    entries: bytes
    end: int | None
    """Relative offset of the first entry that was not taken; None if all were taken."""


class MatchRun:
    """Entries of the batches of a segment between two positions."""

    __slots__ = (
        "end_offset",
        "entries",
        "last_position",
        "position",
        "start_offset",
        "start_position",
    )

    def __init__(self, start_offset: int, position: int) -> None:
        self.start_offset = start_offset
        self.start_position = position
        self.position = position
        """Position up to which batches were scanned."""
        self.last_position = -1
        """Position of the last scanned batch; -1 before the first."""
        self.end_offset = start_offset
        """Offset up to which records were scanned."""
        self.entries = bytearray()

    @property
    def count(self) -> int:
        return len(self.entries) // ENTRY_SIZE

    def add(self, entries: Iterable[bytes], end_offset: int, size: int) -> None:
        """Add the entries of the next batch, which has `size` bytes and ends at `end_offset`."""
        self.entries += b"".join(entries)
        self.last_position = self.position
        self.position += size
        self.end_offset = end_offset

    def join(self, following: MatchRun) -> None:
        """Add a run that begins where this one ends."""
        self.entries += following.entries
        self.position, self.end_offset = following.position, following.end_offset
        self.last_position = following.last_position

    def take(self, relative_offset: int) -> TakenEntries:
        """Take entries from `relative_offset` on, at most about `MAX_ENTRIES`."""
        first = bisect_left(range(self.count), relative_offset, key=self._relative_offset)
        return take_batches(self._entry(at) for at in range(first, self.count))

    def sorted_buckets(self) -> Iterator[list[bytes]]:
        every = map(self._entry, range(self.count))
        while bucket := list(islice(every, _BUCKET_ENTRIES)):
            yield bucket

    def _entry(self, at: int) -> bytes:
        return bytes(self.entries[at * ENTRY_SIZE : (at + 1) * ENTRY_SIZE])

    def _relative_offset(self, at: int) -> int:
        start = at * ENTRY_SIZE + SORT_KEY_BYTES
        return int.from_bytes(self.entries[start : start + 4], "big")


def take_stored(file: EntryFile, relative_offset: int) -> TakenEntries:
    """Take entries of a file from `relative_offset` on, at most about `MAX_ENTRIES`."""
    return take_batches(file.scan(NO_SORT_KEY + PLACE.pack(relative_offset, 0, 0, 0)))


def take_batches(entries: Iterator[bytes]) -> TakenEntries:
    taken = list(islice(entries, MAX_ENTRIES))
    for entry in entries:
        relative_offset, position, *_ = ENTRY.unpack(entry)
        if position != ENTRY.unpack(taken[-1])[1]:
            return TakenEntries(b"".join(taken), relative_offset)
        taken.append(entry)
    return TakenEntries(b"".join(taken), None)
