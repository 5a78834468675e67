"""Record batches that no correct client sends, with a valid CRC unless the CRC is the defect."""

from __future__ import annotations

import struct

from watch import now_ms

from penstock.records.batch import HEADER_SIZE, read_header, write_crc, write_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.varints import encode


def good(count: int = 1, *, key: bytes | None = b"key", codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(key, b"value", now_ms())] * count, codec=codec)


def with_header(batch: bytes | bytearray, **fields: int) -> bytes:
    """A batch with other header values and a matching CRC."""
    changed = bytearray(batch)
    write_header(changed, read_header(changed)._replace(**fields))
    write_crc(memoryview(changed))
    return bytes(changed)


def with_crc(batch: bytes | bytearray, crc: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(">I", changed, 17, crc)
    return bytes(changed)


def with_body(body: bytes, *, codec: int = Codec.NONE, count: int = 1) -> bytes:
    """A batch with a correct header and these bytes as its records."""
    template = build_batch([NewRecord(b"key", b"value", now_ms())])
    batch = bytearray(template[:HEADER_SIZE]) + body
    return with_header(
        batch, batch_length=len(batch) - 12, attributes=codec, record_count=count, last_offset_delta=count - 1
    )


def record(
    *,
    key: bytes = encode(3) + b"key",
    value: bytes = encode(5) + b"value",
    headers: bytes = encode(0),
    timestamp_delta: bytes = encode(0),
    offset_delta: int = 0,
    length: int | None = None,
) -> bytes:
    """One record with any part replaced by other bytes; its length matches unless it is given."""
    content = b"\x00" + timestamp_delta + encode(offset_delta) + key + value + headers
    return encode(len(content) if length is None else length) + content
