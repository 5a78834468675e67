"""The few Kafka frames of the raw driver, packed by hand so that ten thousand clients cost little.

Only versions without the flexible encoding: ApiVersions 0, Produce 7, Fetch 4, InitProducerId 0. The module does not
use `penstock.wire`, so that both do not share a mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
from crc32c import crc32c

PRODUCE, FETCH, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 18, 22
PRODUCE_VERSION, FETCH_VERSION = 7, 4
CLIENT_ID = b"bench"
MAX_FETCH_BYTES = 1 << 20
LZ4 = 3
_CRC_AT, _COVERED_AT, _PRODUCER_AT, _RECORDS_AT = 17, 21, 43, 61


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    error_code: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    error_code: int
    high_watermark: int
    record_bytes: int


def api_versions_request(correlation_id: int) -> bytes:
    return frame(API_VERSIONS, 0, correlation_id, b"")


def produce_request(correlation_id: int, topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    head = struct.pack(">hhi", -1, acks, 30_000)
    body = _one_partition(topic, partition) + struct.pack(">i", len(batch)) + batch
    return frame(PRODUCE, PRODUCE_VERSION, correlation_id, head + body)


def init_producer_id_request(correlation_id: int) -> bytes:
    """Request for a new producer id, without a transactional id."""
    return frame(INIT_PRODUCER_ID, 0, correlation_id, struct.pack(">hi", -1, 60_000))


def read_init_producer_id(body: bytes) -> tuple[int, int, int]:
    """Error code, producer id and producer epoch; `body` starts at the correlation id."""
    return struct.unpack_from(">hqh", body, 8)


def fetch_request(correlation_id: int, topic: str, partition: int, offset: int, max_wait_ms: int) -> bytes:
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, MAX_FETCH_BYTES, 0)
    body = _one_partition(topic, partition) + struct.pack(">qi", offset, MAX_FETCH_BYTES)
    return frame(FETCH, FETCH_VERSION, correlation_id, head + body)


def read_produce(body: bytes) -> ProduceAnswer:
    """Response for the only partition of the request; `body` starts at the correlation id."""
    position = _partitions_position(body, 4)
    _, error_code, base_offset = struct.unpack_from(">ihq", body, position)
    return ProduceAnswer(error_code, base_offset)


def read_fetch(body: bytes | memoryview) -> FetchAnswer:
    _, error_code, high_watermark = struct.unpack_from(">ihq", body, _partitions_position(body, 8))
    return FetchAnswer(error_code, high_watermark, len(body) - records_position(body))


def records_position(body: bytes | memoryview) -> int:
    """Position of the records in a Fetch response; they are its last field."""
    position = _partitions_position(body, 8)
    (aborted,) = struct.unpack_from(">i", body, position + 22)
    return position + 30 + max(0, int(aborted)) * 16


def one_record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """A record batch (magic 2) that holds one record without a key."""
    return record_batch([value], timestamp_ms)


def record_batch(
    values: Sequence[bytes], timestamp_ms: int, headers: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    """A record batch (magic 2) of records without keys, all with the same headers."""
    tail_of_each = _varint(len(headers)) + b"".join(
        _varint(len(name)) + name + _varint(len(value)) + value for name, value in headers
    )
    records = b"".join(_record(delta, value, tail_of_each) for delta, value in enumerate(values))
    last = len(values) - 1
    tail = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)) + records
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def lz4_batch(batch: bytes) -> bytes:
    """The batch with its records compressed."""
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(batch[_RECORDS_AT:])
    tail = bytearray(batch[_COVERED_AT:_RECORDS_AT]) + bytes(compressor.finish())
    struct.pack_into(">h", tail, 0, LZ4)
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def set_sequence(batch: memoryview, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make a batch that of an idempotent producer."""
    struct.pack_into(">qhi", batch, _PRODUCER_AT, producer_id, producer_epoch, sequence)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(batch[_COVERED_AT:]))


def _record(delta: int, value: bytes, headers: bytes) -> bytes:
    record = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + headers
    return _varint(len(record)) + record


def frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def _one_partition(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, partition)


def _partitions_position(body: bytes | memoryview, topics_at: int) -> int:
    """Position of the first partition, after the topic count, the topic's name and the partition count."""
    (name_length,) = struct.unpack_from(">h", body, topics_at + 4)
    return topics_at + 6 + int(name_length) + 4


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 31)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
