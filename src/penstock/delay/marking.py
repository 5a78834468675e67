"""Marks of a batch: its records whose headers delay, cancel or deliver a message, found without decoding all records.

`find_marks` is compiled C if a compiler was available at installation (`_marks.c`, which releases the GIL for long
bodies), else `find_marks_in_python`. A mark (`MARK`) has eight numbers: offset delta, timestamp delta, kind, value of
the header, origin offset and origin timestamp (-1 if absent), start of the first header, number of headers. A record of
the kind `OTHER` has to be decoded by `read_delay_headers`: its headers are repeated, contradict each other, or are not
decimal numbers. If the limits are not negative, delays up to `max_delay_ms` or up to the time `max_time_ms` are not
returned as marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.delay.headers import HIDING, ORIGIN, PREFIX
from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.walking import layouts, read_headers

MARK: Final = Struct("=8q")
OTHER: Final = 0
DELAY_MS: Final = 1
DELIVER_AT: Final = 2
CANCEL: Final = 3
DELIVERED: Final = 4
NONE: Final = -1
NO_LIMIT: Final = -1
_OURS = HIDING | ORIGIN
_PREFIX = PREFIX.encode()


class Mark(NamedTuple):
    offset_delta: int
    timestamp_delta: int
    kind: int
    value: int
    origin: int
    origin_timestamp: int
    headers_start: int
    header_count: int


def find_marks_in_python(
    body: bytes | memoryview, record_count: int, max_delay_ms: int, max_time_ms: int, /
) -> tuple[bytes, bool]:
    """Packed marks of a body, all of the kind `OTHER`, and True if its offset deltas are consecutive. ValueError if its
    records are not valid.
    """
    body = bytes(body)
    marks = bytearray()
    is_consecutive = True
    try:
        for place, layout in enumerate(layouts(body, record_count)):
            is_consecutive &= layout[3] == place
            if not layout[9] or body.find(_PREFIX, layout[0], layout[1]) < 0:
                continue
            if any(name in _OURS for name, _ in read_headers(body, layout[8], layout[9])):
                marks += MARK.pack(layout[3], layout[2], OTHER, NONE, NONE, NONE, layout[8], layout[9])
    except InvalidBatch:
        raise ValueError from None
    return bytes(marks), is_consecutive


def clear_bits_in_python(bits: bytearray, first_id: int, ids: bytes | memoryview, /) -> int:
    """Clear the bits of ids, which are packed in eight bytes each; return the number of bits that were set."""
    cleared = 0
    for message in memoryview(ids).cast("B").cast("q"):
        place = message - first_id
        if 0 <= place >> 3 < len(bits) and bits[place >> 3] >> (place & 7) & 1:
            bits[place >> 3] &= ~(1 << (place & 7))
            cleared += 1
    return cleared


try:
    from penstock.delay._marks import clear_bits as clear_bits
    from penstock.delay._marks import find_marks as find_marks
except ImportError:
    find_marks = find_marks_in_python
    clear_bits = clear_bits_in_python


def packed_marks(body: bytes | memoryview, record_count: int) -> bytes:
    """All marks of a body in packed form; InvalidBatch if its records are not valid."""
    return _find(body, record_count, NO_LIMIT, NO_LIMIT)[0]


def checked_marks(
    body: bytes | memoryview, record_count: int, max_delay_ms: int, max_time_ms: int
) -> tuple[Iterator[Mark], bool]:
    """Marks of a body except delays within the limits, and True if its offset deltas are consecutive. InvalidBatch if
    its records are not valid.
    """
    packed, is_consecutive = _find(body, record_count, max_delay_ms, max_time_ms)
    return map(Mark._make, MARK.iter_unpack(packed)), is_consecutive


def _find(
    body: bytes | memoryview, record_count: int, max_delay_ms: int, max_time_ms: int
) -> tuple[bytes, bool]:
    try:
        return find_marks(body, record_count, max_delay_ms, max_time_ms)
    except ValueError:
        raise InvalidBatch(
            ErrorCode.invalid_record, "the records are not as long or as many as the batch says"
        ) from None
