"""Reading a log through the filter of a view: batches with the matching records, and skipped ranges between them.

A rebuilt batch keeps base offset, producer, leader epoch, codec and timestamps, and ends with its last matching record.
A batch whose records all match is sent as it is stored, and so are transaction markers. A range of skipped offsets is
sent as one control batch (`records.control`). Waits for the disk: runs in a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import crc_matches
from penstock.records.building import with_kept_records
from penstock.records.control import MAX_SKIPPED_OFFSETS, AbortedTransaction, build_skipped_range
from penstock.records.expiry import has_lifetime
from penstock.storage.batch_scan import read_range
from penstock.storage.damage import next_damage
from penstock.storage.derived.entries import RecordPlace
from penstock.storage.derived.stored_batch import StoredBatch, StoredEntry
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_view import LogView
from penstock.storage.projection.match_index import MatchIndex
from penstock.storage.projection.match_run import CONTROL_PLACE, ENTRY
from penstock.storage.projection.rebuilt_batches import RebuiltBatch
from penstock.storage.segment import Segment


class ProjectedQuery(NamedTuple):
    offset: Offset
    max_bytes: int
    below: Offset
    at_least_one: bool
    now_ms: int | None = None
    """Time in milliseconds for the expiry of records: expired records are left out; None to include them."""


@dataclass(frozen=True, slots=True)
class ProjectedRecords:
    """Result of a read of a projection."""

    records: bytes
    aborted: list[AbortedTransaction]
    """Aborted transactions that the reader of committed records has to skip."""
    is_due: bool
    """True if the response has matches or is full, so that it is sent without waiting for more records."""
    is_partial: bool
    """True if the read ended before `ProjectedQuery.below`."""


def read_projected(
    index: MatchIndex,
    view: LogView,
    epochs: LeaderEpochs,
    query: ProjectedQuery,
    is_over: Callable[[], bool],
) -> ProjectedRecords:
    """Read the matches from the offset of the query on. CorruptLog if the first batch there is damaged."""
    response = _Response(epochs, query)
    limit = int(query.below)
    damaged = next_damage(view.damage, query.offset)
    if damaged is not None and damaged.base_offset < limit:
        limit = damaged.base_offset
    try:
        _fill(response, index, view, query, limit, is_over)
    except CorruptLog:
        if response.known_end <= query.offset:
            raise
    if damaged is not None and response.known_end <= query.offset and damaged.base_offset <= query.offset:
        raise CorruptLog(str(damaged))
    response.finish()
    aborted = (
        view.aborted.between(query.offset, response.cursor) if view.aborted.reaches(query.offset) else []
    )
    return ProjectedRecords(
        b"".join(response.parts),
        aborted,
        response.has_matches or response.is_full,
        response.cursor < query.below,
    )


def first_match(
    index: MatchIndex, view: LogView, offset: int, below: int, is_over: Callable[[], bool]
) -> tuple[bool, int]:
    """Return True if a record in [`offset`, `below`) matches, and the offset below which no record matches."""
    known_end = offset
    for stretch in index.stretches(view, offset, below, is_over):
        for relative_offset, _, place, _ in ENTRY.iter_unpack(stretch.entries):
            if place != CONTROL_PLACE and offset <= stretch.segment.base_offset + relative_offset < below:
                return True, known_end
        known_end = stretch.end_offset
    return False, min(known_end, below)


def _fill(
    response: _Response,
    index: MatchIndex,
    view: LogView,
    query: ProjectedQuery,
    limit: int,
    is_over: Callable[[], bool],
) -> None:
    for segment, stored, end_offset in index.stretches(view, query.offset, limit, is_over):
        for entries in _batches(segment, stored):
            last_offset = entries[-1].offset
            if last_offset < query.offset:
                continue
            if entries[0].offset >= limit:
                break
            batch = _read_batch(index, view, entries, query)
            response.known_end = max(response.known_end, entries[0].offset)
            if batch is not None and not response.add(batch, is_match=entries[0].place != CONTROL_PLACE):
                return
        response.known_end = min(end_offset, limit)
        if response.is_full:
            return


def _batches(segment: Segment, stored: bytes) -> Iterator[list[StoredEntry]]:
    """The entries of each batch."""
    unpacked = (RecordPlace._make(each) for each in ENTRY.iter_unpack(stored))
    for _, group in groupby(unpacked, key=lambda place: place.position):
        yield [
            StoredEntry(
                segment.base_offset + each.relative_offset, segment, each.position, each.place, each.crc
            )
            for each in group
        ]


def _read_batch(
    index: MatchIndex, view: LogView, entries: Sequence[StoredEntry], query: ProjectedQuery
) -> RebuiltBatch | None:
    """A batch with the records of `entries` that have not expired; None if all have. `entries` are all entries of one
    batch from the offset of the query on.
    """
    first, now_ms = entries[0], query.now_ms
    known = index.rebuilt.get(first.segment, first.position)
    if known is not None:
        return known
    stored = StoredBatch(view, first)
    header = stored.header
    if first.place == CONTROL_PLACE or (
        len(entries) == header.record_count and entries[-1].offset == header.last_offset
    ):
        content = read_range(first.segment.file, first.position, header.size, wait=True)
        if not crc_matches(memoryview(content), header):
            raise CorruptLog(f"{first.segment.log_file.path}: the batch at {first.position} is damaged")
        if first.place == CONTROL_PLACE or now_ms is None or not stored.may_expire(content):
            return RebuiltBatch(content, header.base_offset, header.last_offset)
    found = [stored.find(entry) for entry in entries]
    if None in found:
        raise CorruptLog(f"{first.segment.log_file.path}: the batch at {first.position} has other records")
    kept = [
        (entry.offset, record.content)
        for entry, record in zip(entries, found, strict=True)
        if record is not None and not (now_ms is not None and stored.is_expired(record.content, now_ms))
    ]
    if not kept:
        return None
    last_offset = kept[-1][0]
    shown = [record for _, record in kept]
    batch = RebuiltBatch(with_kept_records(header, shown, last_offset), header.base_offset, last_offset)
    if len(kept) == len(entries) and header.base_offset >= query.offset and not any(map(has_lifetime, shown)):
        index.rebuilt.add(first.segment, first.position, batch)
    return batch


class _Response:
    """Records of one response while it fills up."""

    def __init__(self, epochs: LeaderEpochs, query: ProjectedQuery) -> None:
        self.parts: list[bytes | bytearray] = []
        self.cursor = int(query.offset)
        """Offset at which the next read starts."""
        self.known_end = self.cursor
        """Offset up to which all matches are in the response."""
        self.has_matches = False
        self.is_full = False
        self._epochs = epochs
        self._query = query
        self._size = 0

    def add(self, batch: RebuiltBatch, *, is_match: bool) -> bool:
        """Add the skipped range before a batch, then the batch; False if there is no room."""
        if not (self._skip(batch.base_offset) and self._put(batch.content)):
            self.is_full = True
            return False
        self.cursor = batch.last_offset + 1
        self.has_matches |= is_match
        return True

    def finish(self) -> None:
        """Add the skipped range up to `known_end`."""
        self._skip(self.known_end)

    def _skip(self, end: int) -> bool:
        while self.cursor < end:
            last = min(end, self.cursor + MAX_SKIPPED_OFFSETS) - 1
            if not self._put(build_skipped_range(self.cursor, last, self._epochs.epoch_at(Offset(last)))):
                return False
            self.cursor = last + 1
        return True

    def _put(self, content: bytes | bytearray) -> bool:
        has_room = self._size + len(content) <= self._query.max_bytes
        if not has_room and (self.parts or not self._query.at_least_one):
            return False
        self.parts.append(content)
        self._size += len(content)
        return True
