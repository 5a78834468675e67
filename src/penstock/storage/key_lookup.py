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
from penstock.records.batch import HEADER_SIZE, crc_matches, read_header
from penstock.records.building import with_records
from penstock.records.iteration import walk
from penstock.storage.key_entries import batch_body, idempotency_hash, idempotency_key, key_hash, read_key
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
    for entry in _entries(index, view, key_hash(query.key), start):
        if entry.offset >= view.below:
            records.next_due = Offset(entry.offset)
            break
        try:
            if not page.take(view, entry):
                return page.finish()
        except CorruptLog as damage:
            if page.is_empty:
                return KeyRecords(view.log_start_offset, Offset(entry.offset + 1), damage=damage)
            return page.finish()
    page.finish()
    records.next_offset = max(start, view.below)
    records.is_complete = True
    return records


def find_original(index: KeyIndex, view: LogView, key: bytes | None, own_key: bytes) -> Offset | None:
    """The offset of the record with this key and this idempotency key, committed or not."""
    wanted = idempotency_hash(key, own_key)
    for entry in _entries(index, view, wanted, view.log_start_offset):
        try:
            batch = _OpenBatch(view, entry)
            found = batch.find(entry)
            if batch.is_aborted or found is None or found.key != key:
                continue
            [(*_, headers)] = walk(found.content, 1)
        except (CorruptLog, InvalidBatch):
            continue  # nobody can be shown it
        if idempotency_key(headers) == own_key:
            return Offset(entry.offset)
    return None


class _Entry(NamedTuple):
    offset: int
    segment: Segment
    position: int
    place: int


def _entries(index: KeyIndex, view: LogView, wanted: bytes, start: Offset) -> Iterator[_Entry]:
    """Every entry with a hash from an offset on."""
    for segment in view.segments[max(0, floor_segment(view.segments, start)) :]:
        base_offset = segment.base_offset
        try:
            found = index.source(segment).find(wanted, max(0, start - base_offset))
            for relative_offset, position, place in found:
                yield _Entry(base_offset + relative_offset, segment, position, place)
        except KeysDamaged:
            index.drop(segment)
            raise KeysMissing from None


class _Found(NamedTuple):
    key: bytes | None
    content: bytes
    """The record as it is stored."""


class _OpenBatch:
    """A stored batch, whole and checked, with its records decompressed."""

    def __init__(self, view: LogView, entry: _Entry) -> None:
        self.segment, self.position = entry.segment, entry.position
        self.batch = _read_batch(entry.segment, entry.position)
        self.header = read_header(self.batch)
        path = entry.segment.log_file.path
        if not crc_matches(self.batch, self.header):
            raise CorruptLog(f"{path}: the CRC of the batch at {entry.position} does not match")
        self.is_aborted = self.header.is_transactional and view.aborted.has(
            self.header.producer_id, self.header.base_offset
        )
        try:
            self._body = batch_body(self.batch, self.header, view.max_decompressed_bytes)
        except InvalidBatch as error:
            raise CorruptLog(f"{path}: {error}") from error

    def holds(self, entry: _Entry) -> bool:
        return self.position == entry.position and self.segment is entry.segment

    def find(self, entry: _Entry) -> _Found | None:
        try:
            end, delta, key_start, key_length = read_key(self._body, entry.place)
        except (InvalidBatch, IndexError) as error:
            raise CorruptLog(str(error)) from error
        if self.header.base_offset + delta != entry.offset:
            return None
        key = None if key_length < 0 else bytes(self._body[key_start : key_start + key_length])
        return _Found(key, bytes(self._body[entry.place : end]))


def _read_batch(segment: Segment, position: int) -> memoryview:
    """Most are small: their end is there with the header."""
    file, left_bytes = segment.file, segment.size - position
    content = read_range(file, position, min(_FIRST_READ_BYTES, left_bytes), wait=True)
    size = read_header(content).size if len(content) >= HEADER_SIZE else 0
    if not HEADER_SIZE <= size <= left_bytes:
        raise CorruptLog(f"{segment.log_file.path}: no batch at {position}")
    if size > len(content):
        content = read_range(file, position, size, wait=True)
    return memoryview(content)[:size]


class _Page:
    """What one lookup answers, as it fills up."""

    def __init__(self, query: KeyQuery, records: KeyRecords) -> None:
        self._query = query
        self._records = records
        self._batch: _OpenBatch | None = None
        self._found: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._read_bytes = 0

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def take(self, view: LogView, entry: _Entry) -> bool:
        """Take the record in, if it is one of the key; false when the page is full before it."""
        batch = self._batch
        if batch is None or not batch.holds(entry):
            self._close_batch()
            if self._read_bytes > MAX_READ_BYTES and self._count:
                return False
            batch = self._batch = _OpenBatch(view, entry)
            self._read_bytes += len(batch.batch)
        found = None if batch.is_aborted else batch.find(entry)
        if found is None or found.key != self._query.key:
            return True
        size = len(found.content) + HEADER_SIZE
        if self._count and (
            self._count >= self._query.max_records or self._bytes + size > self._query.max_bytes
        ):
            return False
        self._found.append(found.content)
        self._count += 1
        self._bytes += size
        self._records.next_offset = Offset(entry.offset + 1)
        return True

    def finish(self) -> KeyRecords:
        self._close_batch()
        return self._records

    def _close_batch(self) -> None:
        batch, found = self._batch, self._found
        if batch is not None and found:
            is_whole = batch.header.record_count == 1
            self._records.batches.append(batch.batch if is_whole else with_records(batch.header, found))
        self._batch, self._found = None, []
