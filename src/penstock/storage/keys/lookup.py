"""Lookup of the records of one key: index entries lead to records, whose keys are compared with the requested key.

Waits for the disk: runs in a thread pool, after the index has caught up with the same view of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.delay.headers import is_hidden
from penstock.errors import CorruptLog, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE
from penstock.records.building import with_records
from penstock.records.content import Headers
from penstock.records.iteration import walk
from penstock.storage.damage import next_damage
from penstock.storage.derived.file import EntriesDamaged
from penstock.storage.derived.index import DerivedIndex, EntriesMissing
from penstock.storage.derived.stored_batch import StoredBatch, StoredEntry
from penstock.storage.keys.entries import OUR_HEADERS, idempotency_hash, idempotency_key, key_hash
from penstock.storage.log_view import LogView
from penstock.storage.reading import floor_segment

MAX_READ_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that one lookup reads. It ends a page early if the records are spread over large batches."""
_NONE = Offset(-1)


class KeyQuery(NamedTuple):
    key: bytes
    from_offset: Offset
    max_records: int
    max_bytes: int
    now_ms: int = -1
    """Time in milliseconds for the expiry of records: expired records are left out; -1 returns them too."""


@dataclass(slots=True)
class KeyRecords:
    """Batches with the records of one key, and the offset at which the next lookup starts."""

    log_start_offset: Offset
    next_offset: Offset
    batches: list[bytearray] = field(default_factory=list)
    is_complete: bool = False
    next_due: Offset = _NONE
    """Offset of the first uncommitted record whose key has the requested hash; -1 without one."""
    damage: CorruptLog | None = None
    """Error of the first record that cannot be read; `next_offset` is then the offset after the damage."""


def look_up(index: DerivedIndex, view: LogView, query: KeyQuery) -> KeyRecords:
    """Look up a page of records; EntriesMissing if the index of a segment has to be written first.

    A lookup ends before a damaged range, which may contain records of the key.
    """
    if index.suspects:
        raise EntriesMissing
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
        """True if a message has the same value and headers, ignoring the headers that Penstock adds."""
        return self.value == value and _of_the_sender(self.headers) == _of_the_sender(headers)


def _of_the_sender(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [header for header in headers if not header[0].startswith(OUR_HEADERS)]


def find_original(index: DerivedIndex, view: LogView, key: bytes | None, own_key: bytes) -> Original | None:
    """Find the first record with a key and the idempotency key `own_key`; it need not be committed yet."""
    wanted = idempotency_hash(key, own_key)
    for entry in _entries(index, view, wanted, view.log_start_offset):
        try:
            batch = StoredBatch(view, entry)
            found = batch.find(entry)
            if batch.is_aborted or found is None or found.key != key:
                continue
            [(*_, value_start, value_length, headers)] = walk(found.content, 1)
        except (CorruptLog, InvalidBatch):
            continue  # consumers cannot read this record either
        if idempotency_key(headers) == own_key:
            value = None if value_length < 0 else found.content[value_start : value_start + value_length]
            return Original(Offset(entry.offset), value, headers)
    return None


def _entries(index: DerivedIndex, view: LogView, wanted: bytes, start: Offset) -> Iterator[StoredEntry]:
    """Every entry with the sort key `wanted`, from the offset `start` on."""
    for segment in view.segments[max(0, floor_segment(view.segments, start)) :]:
        base_offset = segment.base_offset
        try:
            for found in index.source(segment).find(wanted, max(0, start - base_offset)):
                offset = base_offset + found.relative_offset
                yield StoredEntry(offset, segment, found.position, found.place, found.crc)
        except EntriesDamaged:
            index.drop(segment)
            raise EntriesMissing from None


def _is_delayed(content: bytes) -> bool:
    """True if consumers do not receive a record: it is a delayed message or cancels one."""
    [(*_, headers)] = walk(content, 1)
    return is_hidden(headers)


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

    def take(self, view: LogView, entry: StoredEntry) -> bool:
        """Add the record of an entry if it has the requested key; False if the page is full."""
        batch = self._batch
        if batch is None or not batch.holds(entry):
            self._close_batch()
            if self._read_bytes > MAX_READ_BYTES and self._count:
                return False
            batch = self._batch = StoredBatch(view, entry)
        found = None if batch.is_aborted else batch.find(entry)
        if (
            found is None
            or found.key != self._query.key
            or (view.hides_delayed and _is_delayed(found.content))
            or batch.is_expired(found.content, self._query.now_ms)
        ):
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
