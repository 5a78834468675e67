"""Layouts of the records in a decompressed batch body: the positions of each record, its key, value and headers.

`lay_out` is compiled C if a compiler was available at installation (`_walker.c`, which releases the GIL for long
bodies), else `lay_out_in_python`; both accept the same bodies and return the same bytes. A layout (`LAYOUT`) has ten
numbers: start and end of the record, timestamp delta, offset delta, start and length of the key, start and length of
the value, start of the first header, number of headers. A length of -1 is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.content import HEADER_NAMES, Headers
from penstock.records.varints import decode_int, decode_long

LAYOUT = Struct("=10q")
_OFFSET_DELTA = 3
"""Index of the offset delta in a layout."""
_RECORDS_AT_ONCE = 512
"""Number of layouts in memory at a time. It is limited because a layout can be larger than its record."""

Layout = tuple[int, int, int, int, int, int, int, int, int, int]
Body = bytes | memoryview


def lay_out_in_python(body: Body, position: int, record_count: int, /) -> bytes:
    """Packed layouts of the next `record_count` records from a position on; ValueError if a record is not valid."""
    layouts = bytearray()
    try:
        for _ in range(record_count):
            start = position
            length, content = decode_int(body, position)
            position = content + length
            if length < 1 or position > len(body):
                raise ValueError
            layouts += LAYOUT.pack(start, position, *_lay_out(body, content, position))
    except (IndexError, InvalidBatch):
        raise ValueError from None
    return bytes(layouts)


def _lay_out(body: Body, position: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    timestamp_delta, position = decode_long(body, position + 1)  # skips the unused record attributes
    offset_delta, position = decode_int(body, position)
    key_length, key_start = decode_int(body, position)
    position = key_start + max(0, key_length)
    value_length, value_start = decode_int(body, position)
    position = value_start + max(0, value_length)
    count, headers_start = decode_int(body, position)
    position = headers_start
    if key_length < -1 or value_length < -1 or count < 0 or count * 2 > end - position:
        raise ValueError
    for _ in range(count):
        name_length, position = decode_int(body, position)
        position += name_length
        value_length_here, position = decode_int(body, position)
        position += max(0, value_length_here)
        if name_length < 0 or value_length_here < -1 or position > end:
            raise ValueError
    if position != end:
        raise ValueError
    return (
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        headers_start,
        count,
    )


try:
    from penstock.records._walker import lay_out as lay_out
except ImportError:
    lay_out = lay_out_in_python


def layouts(body: Body, record_count: int, from_delta: int = 0) -> Iterator[Layout]:
    """The layouts of all records in a body; InvalidBatch unless it has exactly `record_count` records.

    Records at the start of the body with an offset delta below `from_delta` are skipped at little cost.
    """
    position = 0
    while record_count > 0:
        count = min(record_count, _RECORDS_AT_ONCE)
        try:
            packed = lay_out(body, position, count)
        except ValueError:
            raise _invalid("the records are not as long or as many as the batch says") from None
        left = packed if from_delta <= 0 else _from(packed, from_delta)
        yield from LAYOUT.iter_unpack(left)
        position = LAYOUT.unpack_from(packed, len(packed) - LAYOUT.size)[1]
        record_count -= count
    if position != len(body):
        raise _invalid("there are bytes after the last record")


def _from(packed: bytes, from_delta: int) -> memoryview:
    """The layouts from the first record on whose offset delta is `from_delta` or higher."""
    deltas = memoryview(packed).cast("q")[_OFFSET_DELTA :: LAYOUT.size // 8].tolist()
    place = next((place for place, delta in enumerate(deltas) if delta >= from_delta), len(deltas))
    return memoryview(packed)[place * LAYOUT.size :]


def read_headers(body: Body, position: int, count: int) -> Headers:
    """Decode `count` headers from a position on, both of which are in the layout of a record."""
    headers = []
    for _ in range(count):
        length, start = decode_int(body, position)
        name = bytes(body[start : start + length]).decode(errors=HEADER_NAMES)
        length, position = decode_int(body, start + length)
        value = None if length < 0 else bytes(body[position : position + length])
        position += max(0, length)
        headers.append((name, value))
    return tuple(headers)


def _invalid(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, message)
