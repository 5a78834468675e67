"""Levels and keys of the records in a part of the log, which `DeliveryOrder` needs. Pure.

Batches without the priority header are recognised by a search in their bytes. Records are decoded only if the header is
found, or if keys are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.errors import InvalidBatch
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.records.iteration import read_batches
from penstock.records.priority import PRIORITY, priority_of
from penstock.records.walking import layouts, read_headers

_NAME: Final = PRIORITY.encode()


class IndexedFields(NamedTuple):
    levels: bool
    keys: bool


@dataclass(slots=True)
class IndexedRecords:
    """Levels and keys of the records from `first_offset` up to `end_offset`, exclusive."""

    first_offset: int
    end_offset: int
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset, last offset and level of consecutive records of one level. Offsets between runs have level 0."""
    keys: list[tuple[int, int]] = field(default_factory=list)
    """Offset and hash of the key of each record that has a key."""


def index_records(
    data: bytes,
    first_offset: int,
    wanted: IndexedFields,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> IndexedRecords:
    """Index the complete batches of `data` from `first_offset` on.

    InvalidBatch if the bytes are not a batch, or a batch decompresses to more than the limit. Records of a batch that
    cannot be read get level 0 and no key: a fetch of these records will report the damage.
    """
    found = IndexedRecords(first_offset, first_offset)
    for header, batch in read_batches(memoryview(data)):
        if not header.is_control and header.last_offset >= first_offset:
            _index_batch(found, header, batch, wanted, max_decompressed_bytes)
        found.end_offset = max(found.end_offset, header.next_offset)
    return found


def _index_batch(
    found: IndexedRecords, header: BatchHeader, batch: memoryview, wanted: IndexedFields, limit: int
) -> None:
    try:
        body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], limit))
    except InvalidBatch:
        if limit < MAX_DECOMPRESSED_BYTES:
            raise  # the caller may repeat the call with a higher limit
        return
    has_levels = wanted.levels and _NAME in body
    if not has_levels and not wanted.keys:
        return
    try:
        for _, _, _, delta, key, key_length, _, _, headers, count in layouts(body, header.record_count):
            offset = header.base_offset + delta
            if not found.end_offset <= offset <= header.last_offset:
                continue
            if wanted.keys and key_length >= 0:
                found.keys.append((offset, hash(body[key : key + key_length])))
            level = priority_of(read_headers(body, headers, count)) if has_levels and count else 0
            if level:
                _add_run(found.runs, offset, level)
    except InvalidBatch:
        return


def _add_run(runs: list[tuple[int, int, int]], offset: int, level: int) -> None:
    if runs and runs[-1][1] == offset - 1 and runs[-1][2] == level:
        runs[-1] = (runs[-1][0], offset, level)
    else:
        runs.append((offset, offset, level))
