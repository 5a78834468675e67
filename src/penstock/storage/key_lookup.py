"""Looking up the records of one key: from entries of the index to the records, each compared with what was asked for.

A batch is read whole and its CRC checked, because what goes out is a new batch with a CRC of its own, which would hide
damage. Waits for the disk: for a pool, after the index has caught up with the same view of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import CorruptLog, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    crc_matches,
    read_header,
)
from penstock.records.building import rebuild_batch
from penstock.records.iteration import Record, record_timestamp, walk
from penstock.storage.key_entries import (
    batch_body,
    find_record,
    idempotency_hash,
    idempotency_key,
    key_hash,
)
from penstock.storage.key_file import KeysDamaged
from penstock.storage.key_index import KeyIndex, KeysMissing, LogView
from penstock.storage.reading import floor_segment
from penstock.storage.segment import Segment
from penstock.storage.walking import read_range

MAX_READ_BYTES = 64 * 1024 * 1024
"""Of one lookup: of records that lie far apart in large batches it returns fewer than it may."""
_FIRST_READ_BYTES = 4096
_NONE = Offset(-1)


class KeyQuery(NamedTuple):
    key: bytes
    from_offset: Offset
    max_records: int
    max_bytes: int


@dataclass(slots=True)
class KeyRecords:
    """Batches with records of a key alone, and where to go on."""

    log_start_offset: Offset
    next_offset: Offset
    batches: list[bytes | bytearray | memoryview] = field(default_factory=list)
    is_complete: bool = False
    next_due: Offset = _NONE
    """Where something with the hash of the key lies that is not committed yet."""
    damage: CorruptLog | None = None
    """Why the first of them cannot be read; `next_offset` is behind it."""


def look_up(index: KeyIndex, view: LogView, query: KeyQuery) -> KeyRecords:
    """KeysMissing where a segment has no index at present."""
    start = max(query.from_offset, view.log_start_offset)
    records = KeyRecords(view.log_start_offset, start)
    page = _Page(query, records)
    for offset, segment, position in _entries(index, view, key_hash(query.key), start):
        if offset >= view.below:
            records.next_due = Offset(offset)
            break
        try:
            if not page.take(view, segment, position, offset):
                return page.finish()
        except CorruptLog as damage:
            if page.is_empty:
                return KeyRecords(view.log_start_offset, Offset(offset + 1), damage=damage)
            return page.finish()
    page.finish()
    records.next_offset = max(start, view.below)
    records.is_complete = True
    return records


def find_original(index: KeyIndex, view: LogView, key: bytes | None, own_key: bytes) -> Offset | None:
    """The offset of the record with this key and this idempotency key, committed or not."""
    for offset, segment, position in _entries(
        index, view, idempotency_hash(key, own_key), view.log_start_offset
    ):
        try:
            batch = _OpenBatch(view, segment, position)
            found = batch.find(offset)
        except CorruptLog:
            continue  # nobody can be shown it
        if found is not None and not batch.is_aborted:
            record = found[0]
            if record.key == key and idempotency_key(record.headers) == own_key:
                return Offset(offset)
    return None


def _entries(
    index: KeyIndex, view: LogView, wanted: bytes, start: Offset
) -> Iterator[tuple[int, Segment, int]]:
    """Offset, segment and position of every entry with a hash from an offset on."""
    for segment in view.segments[max(0, floor_segment(view.segments, start)) :]:
        base_offset = segment.base_offset
        try:
            for relative_offset, position in index.source(segment).find(wanted, max(0, start - base_offset)):
                yield base_offset + relative_offset, segment, position
        except KeysDamaged:
            index.drop(segment)
            raise KeysMissing from None


class _OpenBatch:
    """A stored batch, checked, in which records are found by their offsets, in order."""

    def __init__(self, view: LogView, segment: Segment, position: int) -> None:
        self.segment, self.position = segment, position
        self.batch = _read_batch(segment, position)
        self.header = read_header(self.batch)
        if not crc_matches(self.batch, self.header):
            raise CorruptLog(f"{segment.log_file.path}: the CRC of the batch at {position} does not match")
        self.is_aborted = self.header.is_transactional and view.aborted.has(
            self.header.producer_id, self.header.base_offset
        )
        try:
            self._body = batch_body(self.batch, self.header, view.max_decompressed_bytes)
        except InvalidBatch as error:
            raise CorruptLog(f"{segment.log_file.path}: {error}") from error
        self._place = 0

    def find(self, offset: int) -> tuple[Record, int] | None:
        """The record, and its size."""
        place = find_record(self._body, self._place, offset - self.header.base_offset)
        if place is None:
            return None
        self._place, end = place
        return _read_record(self._body[self._place : end], self.header), end - self._place


def _read_batch(segment: Segment, position: int) -> memoryview:
    """Most are small: their end is there with the header."""
    file = segment.file
    content = read_range(file, position, min(_FIRST_READ_BYTES, segment.size - position), wait=True)
    if len(content) < HEADER_SIZE:
        raise CorruptLog(f"{segment.log_file.path}: no batch at {position}")
    size = read_header(content).size
    if not HEADER_SIZE <= size <= segment.size - position:
        raise CorruptLog(f"{segment.log_file.path}: no batch at {position}")
    if size > len(content):
        content = read_range(file, position, size, wait=True)
    return memoryview(content)[:size]


def _read_record(content: bytes, header: BatchHeader) -> Record:
    try:
        [(delta, offset_delta, key, key_length, value, value_length, headers)] = walk(content, 1)
        is_append_time = header.attributes & LOG_APPEND_TIME_FLAG
        return Record(
            header.base_offset + offset_delta,
            header.max_timestamp if is_append_time else record_timestamp(header, delta),
            None if key_length < 0 else content[key : key + key_length],
            None if value_length < 0 else content[value : value + value_length],
            headers,
        )
    except InvalidBatch as error:
        raise CorruptLog(str(error)) from error


class _Page:
    """What one lookup answers, as it fills up."""

    def __init__(self, query: KeyQuery, records: KeyRecords) -> None:
        self._query = query
        self._records = records
        self._batch: _OpenBatch | None = None
        self._found: list[Record] = []
        self._count = 0
        self._bytes = 0
        self._read_bytes = 0

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def take(self, view: LogView, segment: Segment, position: int, offset: int) -> bool:
        """Take the record in, if it is one of the key; false when the page is full before it."""
        batch = self._batch
        if batch is None or batch.position != position or batch.segment is not segment:
            self._close_batch()
            if self._read_bytes > MAX_READ_BYTES and self._count:
                return False
            batch = self._batch = _OpenBatch(view, segment, position)
            self._read_bytes += len(batch.batch)
        found = None if batch.is_aborted else batch.find(offset)
        if found is None or found[0].key != self._query.key:
            return True
        size = found[1] + HEADER_SIZE
        if self._count and (
            self._count >= self._query.max_records or self._bytes + size > self._query.max_bytes
        ):
            return False
        self._found.append(found[0])
        self._count += 1
        self._bytes += size
        self._records.next_offset = Offset(offset + 1)
        return True

    def finish(self) -> KeyRecords:
        self._close_batch()
        return self._records

    def _close_batch(self) -> None:
        batch, found = self._batch, self._found
        if batch is not None and found:
            if batch.header.record_count == 1:
                self._records.batches.append(batch.batch)
            else:
                plain = batch.header._replace(attributes=batch.header.attributes & ~CODEC_MASK)
                self._records.batches.append(rebuild_batch(plain, found))
        self._batch, self._found = None, []
