"""Building record batches: for Penstock's own clients, for control records, and from the records of other batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    write_crc,
    write_header,
)
from penstock.records.compression import Codec, compress
from penstock.records.content import HEADER_NAMES, Headers
from penstock.records.iteration import Record
from penstock.records.varints import encode


@dataclass(frozen=True, slots=True)
class NewRecord:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


def build_batch(
    records: Sequence[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """Build a batch of one or more records, with consecutive offsets from `base_offset` on."""
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    placed = (
        Record(base_offset + delta, record.timestamp, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    )
    return _finish(header, placed)


def rebuild_batch(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    """Rebuild a batch with some of its records, or none. Its range of offsets, producer and codec stay the same."""
    max_timestamp = header.max_timestamp
    if records and header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(record.timestamp for record in records)
    return _finish(header._replace(max_timestamp=max_timestamp, record_count=len(records)), records)


def with_records(header: BatchHeader, records: Sequence[bytes], count: int | None = None) -> bytearray:
    """Build an uncompressed batch from encoded records of the batch with this header, whose other fields stay the same.

    `count` is the number of records; it is needed if an element of `records` has several records.
    """
    batch = bytearray(HEADER_SIZE) + b"".join(records)
    plain = header._replace(
        attributes=header.attributes & ~CODEC_MASK,
        record_count=len(records) if count is None else count,
        batch_length=len(batch) - LENGTH_OVERHEAD,
    )
    write_header(batch, plain)
    write_crc(memoryview(batch))
    return batch


def with_kept_records(header: BatchHeader, records: Sequence[bytes], last_offset: int) -> bytearray:
    """Build a batch from encoded records of the batch with this header, in the same codec. It ends at `last_offset`,
    the offset of the last record; all other fields stay the same.
    """
    batch = bytearray(HEADER_SIZE) + compress(Codec(header.codec), b"".join(records))
    kept = header._replace(
        last_offset_delta=last_offset - header.base_offset,
        record_count=len(records),
        batch_length=len(batch) - LENGTH_OVERHEAD,
    )
    write_header(batch, kept)
    write_crc(memoryview(batch))
    return batch


def _finish(header: BatchHeader, records: Iterable[Record]) -> bytearray:
    body = b"".join(_encode_record(record, header) for record in records)
    batch = bytearray(HEADER_SIZE) + compress(Codec(header.codec), body)
    write_header(batch, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    write_crc(memoryview(batch))
    return batch


def _encode_record(record: Record, header: BatchHeader) -> bytes:
    parts = [
        b"\x00",
        encode(record.timestamp - header.base_timestamp),
        encode(record.offset - header.base_offset),
        *_encode_bytes(record.key),
        *_encode_bytes(record.value),
        encode(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += _encode_bytes(key.encode(errors=HEADER_NAMES))
        parts += _encode_bytes(value)
    content = b"".join(parts)
    return encode(len(content)) + content


def _encode_bytes(value: bytes | None) -> tuple[bytes, bytes]:
    return (encode(-1), b"") if value is None else (encode(len(value)), value)
