"""Cached information about large or compressed batches: expiry times and places of records.

A response in Kafka's protocol contains whole batches. A consumer that acquires the records of a large batch one by one
would receive and decompress the whole batch each time. It gets an excerpt instead: a batch with only the acquired
records. Loop thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.queues.record_source import Part
from penstock.queues.states import Acquired
from penstock.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, read_header
from penstock.records.building import with_records
from penstock.records.log_slice import LogSlice
from penstock.records.walking import LAYOUT, lay_out

LARGE_BYTES: Final = 16 << 10
"""Minimum size in bytes of an uncompressed batch with a note. Smaller batches are read and sent as a whole."""
MIN_COMPRESSED_RECORDS: Final = 8
"""Minimum number of records in a compressed batch with a note."""
MAX_BODIES_BYTES: Final = 32 << 20
"""Maximum size in bytes of all decompressed batches that a broker caches for excerpts."""
MAX_INDEXED_BYTES: Final = 2 << 20
MAX_INDEXED_RECORDS: Final = 20_000
"""Maximum number of records in a batch for which the places of the records are computed, to limit the time."""
CODEC_POSITION: Final = 22
"""Position of the byte in a batch header that contains the codec."""
_MAX_NOTES: Final = 64
_PART_OF_BATCH: Final = 4
"""An excerpt is made only if at most one of this many records is wanted."""
_RECORDS_AT_ONCE: Final = 4_096
_LAYOUT_FIELDS: Final = LAYOUT.size // 8
_OFFSET_DELTA_FIELD: Final = 3

Expirations = tuple[tuple[int, int], ...]
"""Offset and expiry time in epoch milliseconds of each record that expires."""


class Places(NamedTuple):
    """Offset deltas of the records in a batch, and the positions at which they begin in the decompressed body."""

    deltas: array[int]
    starts: array[int]
    """Start of each record, followed by the end of the last record."""


class Note(NamedTuple):
    header: BatchHeader
    """Header of the batch when the note was made. If compaction changes the batch, the header differs."""
    expirations: Expirations
    places: Places | None


class RecordBodies:
    """Cache of decompressed batches (least recently used), shared by all share-partitions of a broker."""

    def __init__(self, max_bytes: int = MAX_BODIES_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bodies: OrderedDict[tuple[object, int], bytes] = OrderedDict()
        self.size_bytes = 0

    def add(self, owner: object, base_offset: int, body: bytes) -> None:
        self.size_bytes += len(body) - len(self._bodies.pop((owner, base_offset), b""))
        self._bodies[owner, base_offset] = body
        while self.size_bytes > self._max_bytes:
            self.size_bytes -= len(self._bodies.popitem(last=False)[1])

    def find(self, owner: object, base_offset: int) -> bytes | None:
        body = self._bodies.get((owner, base_offset))
        if body is not None:
            self._bodies.move_to_end((owner, base_offset))
        return body


class BatchNotes:
    """Notes of the batches of one share-partition that were added last."""

    def __init__(self, bodies: RecordBodies | None = None) -> None:
        self._notes: OrderedDict[int, Note] = OrderedDict()
        self._bodies = bodies or RecordBodies()

    def find(self, header: BatchHeader) -> Note | None:
        note = self._notes.get(header.base_offset)
        return note if note is not None and note.header == header else None

    def add(self, note: Note, body: bytes = b"") -> None:
        """Add the note of a batch. `body` contains the decompressed records if the batch is compressed."""
        if note.header.codec:
            self._bodies.add(self, note.header.base_offset, body)
        self._notes[note.header.base_offset] = note
        self._notes.move_to_end(note.header.base_offset)
        if len(self._notes) > _MAX_NOTES:
            self._notes.popitem(last=False)

    def excerpts(self, parts: Sequence[Part], acquired: Sequence[Acquired]) -> list[Part]:
        """The parts of a response. A batch with a note is replaced by an excerpt if few records were acquired."""
        return [self._excerpt(part, acquired) if may_be_noted(part) else part for part in parts]

    def _excerpt(self, part: Part, acquired: Sequence[Acquired]) -> Part:
        header = header_of_single(part)
        note = None if header is None else self.find(header)
        if note is None or note.places is None:
            return part
        wanted = list(_wanted(note, acquired))
        if sum(end - first for first, end in wanted) * _PART_OF_BATCH > len(note.places.deltas):
            return part
        starts = note.places.starts
        if sum(starts[end] - starts[first] for first, end in wanted) > max(len(part), LARGE_BYTES):
            return part
        records = []
        for first, end in wanted:
            content = self._content(part, note.header, starts[first], starts[end])
            if content is None or len(content) != starts[end] - starts[first]:
                return part
            records.append(content)
        return memoryview(with_records(note.header, records, sum(end - first for first, end in wanted)))

    def _content(self, part: Part, header: BatchHeader, start: int, end: int) -> bytes | None:
        """Bytes from `start` to `end` of the decompressed body of a batch; None if they are not in memory."""
        if header.codec:
            body = self._bodies.find(self, header.base_offset)
            return None if body is None else body[start:end]
        if isinstance(part, LogSlice):
            return part.file.pread_cached(part.position + HEADER_SIZE + start, end - start)
        return bytes(part[HEADER_SIZE + start : HEADER_SIZE + end])


def _wanted(note: Note, acquired: Sequence[Acquired]) -> Iterator[tuple[int, int]]:
    """Indexes of the acquired records in their batch: for each range the first index, and the one after the last."""
    assert note.places is not None
    base, deltas = note.header.base_offset, note.places.deltas
    for each in sorted(acquired):
        first = bisect_left(deltas, each.first_offset - base)
        end = bisect_right(deltas, each.last_offset - base)
        if first < end:
            yield first, end


def may_be_noted(part: Part) -> bool:
    """True if the batch in a part may have a note; False if it is a small uncompressed batch."""
    return isinstance(part, LogSlice) or len(part) >= LARGE_BYTES or bool(part[CODEC_POSITION] & CODEC_MASK)


def header_of_single(part: Part) -> BatchHeader | None:
    """Header of the batch in a part; None if the part has several batches or is not in memory."""
    if isinstance(part, LogSlice):
        content = part.file.pread_cached(part.position, HEADER_SIZE)
        if content is None or len(content) < HEADER_SIZE:
            return None
        header = read_header(content)
    else:
        header = read_header(part)
    return header if header.size == len(part) else None


def find_places(header: BatchHeader, body: bytes | memoryview) -> Places | None:
    """Compute the places of the records in the decompressed body of a batch; None if it is too large or not valid."""
    if len(body) > MAX_INDEXED_BYTES or header.record_count > MAX_INDEXED_RECORDS:
        return None
    deltas, starts, end = array("q"), array("q"), 0
    try:
        for done in range(0, header.record_count, _RECORDS_AT_ONCE):
            laid = array("q", lay_out(body, end, min(_RECORDS_AT_ONCE, header.record_count - done)))
            starts += laid[::_LAYOUT_FIELDS]
            deltas += laid[_OFFSET_DELTA_FIELD::_LAYOUT_FIELDS]
            end = laid[-_LAYOUT_FIELDS + 1]
    except ValueError:
        return None  # the batch is sent unchanged, and the consumer handles the damage
    starts.append(end)
    is_ascending = all(before < after for before, after in pairwise(deltas))
    return Places(deltas, starts) if is_ascending and end == len(body) else None
