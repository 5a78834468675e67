"""Decoding of fetched bytes, with the checks of a careful consumer: whole batches, in order, below the high
watermark.
"""

from __future__ import annotations

from penstock.errors import InvalidBatch
from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchResult
from simulation.models.history import DamagedBatch, InvariantViolated, ReadRange, ReadRecord


def read_records(name: str, result: FetchResult, offset: int, *, compacted: bool) -> ReadRange:
    """Return the records of a fetch from `offset`; the first batch may begin before it.

    Compaction leaves gaps between and inside of batches, and batches without records.
    """
    records: list[ReadRecord] = []
    expected = offset
    for header, batch in _batches(name, result):
        if not crc_matches(batch, header):
            raise DamagedBatch("I15", f"{name}: the CRC of {_range(header)} is wrong")
        first = expected == offset
        if header.last_offset < expected or (header.base_offset < expected and not first):
            raise InvariantViolated("I5", f"{name}: wanted {expected}, got {_range(header)}")
        if header.base_offset > expected and not compacted:
            raise InvariantViolated("I5", f"{name}: {expected} is skipped, {_range(header)} comes instead")
        if header.last_offset >= result.high_watermark:
            raise InvariantViolated("I8", f"{name}: {_range(header)} above {result.high_watermark}")
        expected = header.next_offset
        records += _records(name, header, batch, compacted=compacted)
    return ReadRange(offset, expected, tuple(records))


def _batches(name: str, result: FetchResult) -> list[tuple[BatchHeader, memoryview]]:
    assert not isinstance(result.records, LogSlice)
    try:
        return list(read_batches(memoryview(result.records)))
    except InvalidBatch as error:
        raise InvariantViolated("I15", f"{name}: {error}") from error


def _records(name: str, header: BatchHeader, batch: memoryview, *, compacted: bool) -> list[ReadRecord]:
    try:
        records = [
            ReadRecord(record.offset, record.timestamp, record.key or b"", record.value or b"")
            for record in iterate(batch, header)
        ]
    except InvalidBatch as error:
        raise InvariantViolated("I15", f"{name}: {_range(header)}: {error}") from error
    offsets = [record.offset for record in records]
    every = range(header.base_offset, header.next_offset)
    if offsets != (sorted(set(every) & set(offsets)) if compacted else list(every)):
        raise InvariantViolated("I15", f"{name}: the records of {_range(header)} have other offsets")
    return records


def _range(header: BatchHeader) -> str:
    return f"batch {header.base_offset} to {header.last_offset}"
