"""Records of a stored batch, read at the places that a derived index gives.

Of an uncompressed batch only the header and the record are read. They are verified by the CRC in the index entry,
because the response is a new batch with a new CRC, which would hide damage. Waits for the disk.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptLog, InvalidBatch
from penstock.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, read_header
from penstock.records.expiry import has_lifetime, is_expired
from penstock.records.iteration import record_timestamp, walk
from penstock.records.varints import decode_int
from penstock.storage.batch_scan import read_range
from penstock.storage.derived.entries import batch_body, read_key
from penstock.storage.log_view import LogView
from penstock.storage.segment import Segment

_READ_BYTES = 4096
_MAX_LENGTH_BYTES = 5


class StoredEntry(NamedTuple):
    offset: int
    segment: Segment
    position: int
    place: int
    crc: int


class _Found(NamedTuple):
    key: bytes | None
    content: bytes
    """The encoded record as it is stored."""


class StoredBatch:
    """A stored batch from which records are read. A compressed batch is read and decompressed as a whole."""

    def __init__(self, view: LogView, entry: StoredEntry) -> None:
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

    def holds(self, entry: StoredEntry) -> bool:
        return self.position == entry.position and self.segment is entry.segment

    def find(self, entry: StoredEntry) -> _Found | None:
        """The record of an entry; None if the place has a record with another offset. CorruptLog if it is damaged."""
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

    def is_expired(self, content: bytes, now_ms: int) -> bool:
        """True if the lifetime of a record is over; `content` is the record as it is stored."""
        if not has_lifetime(content):
            return False
        [(time_delta, *_, headers)] = walk(content, 1)
        has_append_time = self.header.attributes & LOG_APPEND_TIME_FLAG
        time_ms = self.header.max_timestamp if has_append_time else record_timestamp(self.header, time_delta)
        return is_expired(time_ms, headers, now_ms)

    def may_expire(self, batch: bytes) -> bool:
        """True if a record of the batch may have a lifetime; `batch` is the whole batch as it is stored."""
        content = self._window if self.header.codec else batch
        return has_lifetime(content)

    def _bytes_at(self, place: int, count: int) -> bytes:
        """Read up to `count` bytes at a place in the decompressed body; fewer at its end."""
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
