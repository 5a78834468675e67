"""Fetched bytes turned into records, checked as a careful consumer would: whole, in order, below the end."""

from __future__ import annotations

from penstock.errors import InvalidBatch
from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.iteration import iterate, read_batches
from penstock.simulation.history import InvariantViolated, ReadRecord
from penstock.storage.log_slice import LogSlice
from penstock.wire.fetch import FetchResult


def read_records(name: str, result: FetchResult, offset: int) -> list[ReadRecord]:
    """The records of a fetch from `offset`; the first batch may begin before it."""
    records: list[ReadRecord] = []
    expected: int | None = None
    for header, batch in _batches(name, result):
        if expected is None and not header.base_offset <= offset <= header.last_offset:
            raise InvariantViolated("I5", f"{name}: asked for {offset}, got {_range(header)} first")
        if expected is not None and header.base_offset != expected:
            raise InvariantViolated("I5", f"{name}: {_range(header)} follows {expected - 1}")
        if header.last_offset >= result.high_watermark:
            raise InvariantViolated("I8", f"{name}: {_range(header)} above {result.high_watermark}")
        expected = header.next_offset
        records += _records(name, header, batch)
    return records


def _batches(name: str, result: FetchResult) -> list[tuple[BatchHeader, memoryview]]:
    assert not isinstance(result.records, LogSlice)
    try:
        return list(read_batches(memoryview(result.records)))
    except InvalidBatch as error:
        raise InvariantViolated("I15", f"{name}: {error}") from error


def _records(name: str, header: BatchHeader, batch: memoryview) -> list[ReadRecord]:
    if not crc_matches(batch, header):
        raise InvariantViolated("I15", f"{name}: the CRC of {_range(header)} is wrong")
    try:
        records = [
            ReadRecord(each.offset, each.timestamp, each.value or b"") for each in iterate(batch, header)
        ]
    except InvalidBatch as error:
        raise InvariantViolated("I15", f"{name}: {_range(header)}: {error}") from error
    if [record.offset for record in records] != list(range(header.base_offset, header.next_offset)):
        raise InvariantViolated("I15", f"{name}: the records of {_range(header)} have other offsets")
    return records


def _range(header: BatchHeader) -> str:
    return f"batch {header.base_offset} to {header.last_offset}"
