"""Uncompressed batches whose records have no headers and share one timestamp: coordinator records and markers.

A record is encoded when it is added, before the time of the append is known: its timestamp is the base timestamp of
the batch. The result is byte for byte that of `build_batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from penstock.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    write_header,
)
from penstock.records.varints import encode

_CHECKED_HEADER = Struct(">hiqqqhii")
"""The fields of the batch header that the CRC covers."""
_SMALL = tuple(bytes((n,)) for n in range(128))
_MAX_SMALL = 63
"""Greatest number whose zigzag varint has one byte."""
_NO_DELTA = b"\x00\x00"
"""Attributes and timestamp delta of every record."""
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


def encode_plain_record(offset_delta: int, key: bytes, value: bytes | None) -> bytes:
    """Encode a record with this offset delta; the value of a tombstone is None."""
    delta = _SMALL[offset_delta << 1] if offset_delta <= _MAX_SMALL else encode(offset_delta)
    key_size = len(key)
    sized_key = _SMALL[key_size << 1] if key_size <= _MAX_SMALL else encode(key_size)
    if value is None:
        content = _NO_DELTA + delta + sized_key + key + _NULL + _NO_HEADERS
    else:
        value_size = len(value)
        sized_value = _SMALL[value_size << 1] if value_size <= _MAX_SMALL else encode(value_size)
        content = b"".join((_NO_DELTA, delta, sized_key, key, sized_value, value, _NO_HEADERS))
    return encode(len(content)) + content


def build_plain_batch(
    records: Sequence[bytes],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> tuple[bytearray, BatchHeader]:
    """Build a batch from records encoded by `encode_plain_record`, in this order; return it with its header."""
    body = b"".join(records)
    count = len(records)
    attributes = (TRANSACTIONAL_FLAG if transactional else 0) | (CONTROL_FLAG if control else 0)
    checked = _CHECKED_HEADER.pack(
        attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, -1, count
    )
    header = BatchHeader(
        0,
        HEADER_SIZE - LENGTH_OVERHEAD + len(body),
        -1,
        MAGIC,
        crc32c(body, crc32c(checked)),
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        count,
    )
    batch = bytearray(HEADER_SIZE) + body
    write_header(batch, header)
    return batch, header
