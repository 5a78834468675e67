"""Lookup of the records of one key: from entries of the index to the records, each compared with the requested key.

In an uncompressed batch only the header and the record are read, and checked by the CRC in the index: the response is a
new batch with a CRC of its own, which would hide damage. Waits for the disk: runs in a pool, after the index has caught
up with the same view of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptLog, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import with_records
from penstock.records.content import Headers
from penstock.records.iteration import walk
from penstock.records.varints import decode_int
from penstock.storage.batch_scan import read_range
from penstock.storage.damage import next_damage
from penstock.storage.keys.entries import (
    OUR_HEADERS,
    batch_body,
    idempotency_hash,
    idempotency_key,
    key_hash,
    read_key,
)
from penstock.storage.keys.file import KeysDamaged
from penstock.storage.keys.index import KeyIndex, KeysMissing, LogView
from penstock.storage.reading import floor_segment
from penstock.storage.segment import Segment

MAX_READ_BYTES = 64 * 1024 * 1024
"""Maximum bytes that one lookup reads. It returns fewer records than it may if they lie far apart in large batches."""
_READ_BYTES = 4096
_MAX_LENGTH_BYTES = 5
_NONE = Offset(-1)


class KeyQuery(NamedTuple):
    key: bytes
    from_offset: Offset
    max_records: int
    max_bytes: int


@dataclass(slots=True)
class KeyRecords:
    """Batches with the records of one key, and the offset at which the next lookup starts."""

    log_start_offset: Offset
    next_offset: Offset
    batches: list[bytearray] = field(default_factory=list)
    is_complete: bool = False
    next_due: Offset = _NONE
    """Offset of a record with the hash of the key that is not committed yet."""
    damage: CorruptLog | None = None
    """Error of the first record that cannot be read; `next_offset` is behind it."""


def look_up(index: KeyIndex, view: LogView, query: KeyQuery) -> KeyRecords:
    """Look up a page of records; KeysMissing if a segment has no index at present.

    A lookup does not go past a damaged range, which may hold records of the key.
    """
    if index.suspects:
        raise KeysMissing
    start = max(query.from_offset, view.log_start_offset)
    records = KeyRecords(view.log_start_offset, start)
    page = _Page(query, records)
    damaged = next_damage(view.damage, start)
    for entry in _entries(index, view, key_hash(query.key), start):
        if damaged is not None and damaged.base_offset <= entry.offset:
            break
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
    if damaged is not None and damaged.base_offset < view.below:
        if page.is_empty:
            return KeyRecords(view.log_start_offset, damaged.end_offset, damage=CorruptLog(str(damaged)))
        return records
    records.next_offset = max(start, view.below)
    records.is_complete = True
    return records


class Original(NamedTuple):
    """The record that was first stored with a key and an idempotency key."""

    offset: Offset
    value: bytes | None
    headers: Headers

    def says(self, value: bytes | None, headers: Headers) -> bool:
        """True if a message is the same, ignoring the headers that Penstock adds."""
        return self.value == value and _of_the_sender(self.headers) == _of_the_sender(headers)


def _of_the_sender(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [header for header in headers if not header[0].startswith(OUR_HEADERS)]


def find_original(index: KeyIndex, view: LogView, key: bytes | None, own_key: bytes) -> Original | None:
    """Find the record, committed or not."""
    wanted = idempotency_hash(key, own_key)
    for entry in _entries(index, view, wanted, view.log_start_offset):
        try:
            batch = StoredBatch(view, entry)
            found = batch.find(entry)
            if batch.is_aborted or found is None or found.key != key:
                continue
            [(*_, value_start, value_length, headers)] = walk(found.content, 1)
        except (CorruptLog, InvalidBatch):
            continue  # no reader can be shown it
        if idempotency_key(headers) == own_key:
            value = None if value_length < 0 else found.content[value_start : value_start + value_length]
            return Original(Offset(entry.offset), value, headers)
    return None


class Entry(NamedTuple):
    offset: int
    segment: Segment
    position: int
    place: int
    crc: int


def _entries(index: KeyIndex, view: LogView, wanted: bytes, start: Offset) -> Iterator[Entry]:
    """Every entry with a hash from an offset on."""
    for segment in view.segments[max(0, floor_segment(view.segments, start)) :]:
        base_offset = segment.base_offset
        try:
            for found in index.source(segment).find(wanted, max(0, start - base_offset)):
                offset = base_offset + found.relative_offset
                yield Entry(offset, segment, found.position, found.place, found.crc)
        except KeysDamaged:
            index.drop(segment)
            raise KeysMissing from None


class _Found(NamedTuple):
    key: bytes | None
    content: bytes
    """The record as it is stored."""


class StoredBatch:
    """A stored batch from which records are read: one by one, or all of them if they are compressed."""

    def __init__(self, view: LogView, entry: Entry) -> None:
        self.segment, self.position = entry.segment, entry.position
        self._file = entry.segment.file
        left_bytes = entry.segment.size - entry.position
        head = read_range(self._file, entry.position, min(_READ_BYTES, left_bytes), wait=True)
        if len(head) < HEADER_SIZE:
            raise self._damage()
        self.header = header = read_header(head)
        if not HEADER_SIZE <= header.size <= left_bytes:
            raise self._damage()
        self.is_aborted = header.is_transactional and view.aborted.has(header.producer_id, header.base_offset)
        self.read_bytes = len(head)
        self._header_crc = crc32c(head[:HEADER_SIZE])
        self._window, self._window_place = head[HEADER_SIZE : header.size], 0
        self._body_bytes = header.size - HEADER_SIZE
        if header.codec:
            self._decompress(view.max_decompressed_bytes)

    def holds(self, entry: Entry) -> bool:
        return self.position == entry.position and self.segment is entry.segment

    def find(self, entry: Entry) -> _Found | None:
        """The checked record of an entry; None if another record is there."""
        try:
            length, start = decode_int(self._bytes_at(entry.place, _MAX_LENGTH_BYTES), 0)
            content = self._bytes_at(entry.place, start + length) if length > 0 else b""
            if crc32c(content, self._header_crc) != entry.crc:
                raise self._damage()
            _, delta, key_start, key_length = read_key(content, 0)
        except (InvalidBatch, IndexError) as error:
            raise self._damage() from error
        if self.header.base_offset + delta != entry.offset:
            return None
        return _Found(None if key_length < 0 else content[key_start : key_start + key_length], content)

    def _bytes_at(self, place: int, count: int) -> bytes:
        """Read up to `length` bytes of the records, fewer at their end."""
        start = place - self._window_place
        if start < 0 or start + min(count, self._body_bytes - place) > len(self._window):
            length = min(max(count, _READ_BYTES), self._body_bytes - place)
            if length <= 0:
                raise self._damage()
            position = self.position + HEADER_SIZE + place
            self._window, self._window_place = read_range(self._file, position, length, wait=True), place
            self.read_bytes += length
            start = 0
        return self._window[start : start + count]

    def _decompress(self, max_decompressed_bytes: int) -> None:
        batch = memoryview(read_range(self._file, self.position, self.header.size, wait=True))
        self.read_bytes += len(batch)
        try:
            body = batch_body(batch, self.header, max_decompressed_bytes)
        except InvalidBatch as error:
            raise self._damage() from error
        self._window, self._window_place, self._body_bytes = bytes(body), 0, len(body)

    def _damage(self) -> CorruptLog:
        return CorruptLog(f"{self.segment.log_file.path}: the batch at {self.position} is damaged")


class _Page:
    """The response of one lookup while it fills up."""

    def __init__(self, query: KeyQuery, records: KeyRecords) -> None:
        self._query = query
        self._records = records
        self._batch: StoredBatch | None = None
        self._found: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._read_bytes = 0

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def take(self, view: LogView, entry: Entry) -> bool:
        """Add the record if it has the key; False if the page is full."""
        batch = self._batch
        if batch is None or not batch.holds(entry):
            self._close_batch()
            if self._read_bytes > MAX_READ_BYTES and self._count:
                return False
            batch = self._batch = StoredBatch(view, entry)
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
        if batch is not None:
            self._read_bytes += batch.read_bytes
            if found:
                self._records.batches.append(with_records(batch.header, found))
        self._batch, self._found = None, []
