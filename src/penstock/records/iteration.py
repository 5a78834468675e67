"""Iteration over the records of a batch, and over the batches of a fetched range.

    length | attributes 1 byte | timestamp delta | offset delta | key length, key | value length, value |
    header count | per header: key length, key, value length, value          (numbers are zigzag varints)

All bounds are checked: for any input the only exception is InvalidBatch, and the memory used depends on the number of
bytes, not on lengths or counts that the bytes claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    read_header,
)
from penstock.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.records.content import Headers
from penstock.records.walking import layouts, read_headers

_MIN_LONG = -(2**63)
_MAX_LONG = 2**63 - 1


class Record(NamedTuple):
    """One message as a consumer sees it. (A tuple, because a dataclass costs a microsecond more for each.)"""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


# The parts of one record in the body of its batch: timestamp delta, offset delta, start and length of the key, start
# and length of the value (a length of -1 means null), and the headers.
Layout = tuple[int, int, int, int, int, int, Headers]


def iterate(
    buffer: memoryview, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of the batch at the start of `buffer`. InvalidBatch may be raised after some of them."""
    body = bytes(decompress(header.codec, buffer[HEADER_SIZE : header.size], max_decompressed_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    for delta, offset_delta, key, key_length, value, value_length, headers in walk(body, header.record_count):
        yield Record(
            header.base_offset + offset_delta,
            record_timestamp(header, delta) if append_time is None else append_time,
            None if key_length < 0 else body[key : key + key_length],
            None if value_length < 0 else body[value : value + value_length],
            headers,
        )


def iterate_between(
    buffer: memoryview, header: BatchHeader, first: int, last: int, max_decompressed_bytes: int
) -> Iterator[Record]:
    """The records of a batch with offsets from `first` to `last`, inclusive. Other records are skipped cheaply."""
    body = bytes(decompress(header.codec, buffer[HEADER_SIZE : header.size], max_decompressed_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    from_delta, to_delta = first - header.base_offset, last - header.base_offset
    for _, _, delta, offset_delta, key, key_length, value, value_length, headers, count in layouts(
        body, header.record_count, from_delta
    ):
        if offset_delta < from_delta:
            continue
        if offset_delta > to_delta:
            return
        yield Record(
            header.base_offset + offset_delta,
            record_timestamp(header, delta) if append_time is None else append_time,
            None if key_length < 0 else body[key : key + key_length],
            None if value_length < 0 else body[value : value + value_length],
            read_headers(body, headers, count) if count else (),
        )


def record_timestamp(header: BatchHeader, delta: int) -> int:
    timestamp = header.base_timestamp + delta
    if not _MIN_LONG <= timestamp <= _MAX_LONG:
        raise _invalid("a timestamp is out of range")
    return timestamp


def read_batches(buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches of a fetched range, in order. An incomplete last batch is dropped."""
    position = 0
    while len(buffer) - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise InvalidBatch(ErrorCode.corrupt_message, "these bytes are not a record batch")
        end = position + header.size
        if end > len(buffer):
            return
        yield header, buffer[position:end]
        position = end


def walk(body: bytes | memoryview, record_count: int) -> Iterator[Layout]:
    """Find every record of a decompressed batch body, which must hold exactly `record_count` records."""
    for _, _, delta, offset_delta, key, key_length, value, value_length, headers, count in layouts(
        body, record_count
    ):
        named = read_headers(body, headers, count) if count else ()
        yield delta, offset_delta, key, key_length, value, value_length, named


def _invalid(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, message)
