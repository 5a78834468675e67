"""ShareFetch and ShareAcknowledge, versions 1 and 2 (KIP-932), coded by hand because they are the hot path of
share groups.

Malformed bytes raise ProtocolError and nothing else. The acknowledge types of a range are kept as the bytes
of the request, so that no memory is allocated for a length that is only claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.records.log_slice import LogSlice
from penstock.wire import primitives as p
from penstock.wire.fetch import Part
from penstock.wire.headers import encode_response_header
from penstock.wire.leader_hints import NodeEndpoint, encode_endpoints
from penstock.wire.reader import MALFORMED, Reader

SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
RENEW_FROM: Final = 2

_FETCH_HEAD = Struct(">iiiiii")
_OFFSETS = Struct(">qq")
_ACQUIRED = Struct(">qqhB")
_INDEX_AND_ERROR = Struct(">ih")
_LEADER = Struct(">iiB")
_PLAIN = Struct(">ihBhBiiB")
"""Fields of a partition from its index to the size of its records, with both error messages null."""
_SIZE_BYTES = 4
_MIN_TOPIC_BYTES = 18
_MIN_PARTITION_BYTES = 6
_MIN_BATCH_BYTES = 18

Types = tuple[int, int, bytes]
"""First offset, last offset and acknowledge types of a range."""


class SharePartitionRequest(NamedTuple):
    topic_id: UUID
    partition: int
    acknowledgements: list[Types]


@dataclass(slots=True)
class ShareRequest:
    """ShareFetch or ShareAcknowledge request. In a ShareAcknowledge, the fields of a fetch are 0."""

    group_id: str | None
    member_id: str | None
    epoch: int
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0
    max_records: int = 0
    batch_size: int = 0
    acquire_mode: int = 0
    is_renew: bool = False
    partitions: list[SharePartitionRequest] = field(default_factory=list)
    forgotten: list[tuple[UUID, int]] = field(default_factory=list)


def decode_share_fetch(frame: memoryview, position: int, version: int) -> ShareRequest:
    return _decode(_read_fetch, frame, position, version)


def decode_share_acknowledge(frame: memoryview, position: int, version: int) -> ShareRequest:
    return _decode(_read_acknowledge, frame, position, version)


def _decode(
    read: Callable[[Reader, int], ShareRequest], frame: memoryview, position: int, version: int
) -> ShareRequest:
    try:
        return read(Reader(frame, position), version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed share request: {error}") from None


def _read_fetch(reader: Reader, version: int) -> ShareRequest:
    group_id, member_id = reader.nullable_compact_string(), reader.nullable_compact_string()
    request = ShareRequest(group_id, member_id, *reader.unpack(_FETCH_HEAD))
    if version >= RENEW_FROM:
        request.acquire_mode, request.is_renew = reader.int8(), reader.boolean()
    _read_topics(reader, request)
    for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
        topic_id = reader.uuid()
        request.forgotten += [(topic_id, reader.int32()) for _ in range(reader.compact_array_length(4))]
        reader.skip_tags()
    reader.skip_tags()
    return request


def _read_acknowledge(reader: Reader, version: int) -> ShareRequest:
    group_id, member_id = reader.nullable_compact_string(), reader.nullable_compact_string()
    request = ShareRequest(group_id, member_id, reader.int32())
    if version >= RENEW_FROM:
        request.is_renew = reader.boolean()
    _read_topics(reader, request)
    reader.skip_tags()
    return request


def _read_topics(reader: Reader, request: ShareRequest) -> None:
    for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
        topic_id = reader.uuid()
        for _ in range(reader.compact_array_length(_MIN_PARTITION_BYTES)):
            index = reader.int32()
            batches = [_read_batch(reader) for _ in range(reader.compact_array_length(_MIN_BATCH_BYTES))]
            reader.skip_tags()
            request.partitions.append(SharePartitionRequest(topic_id, index, batches))
        reader.skip_tags()


def _read_batch(reader: Reader) -> Types:
    first, last = reader.unpack(_OFFSETS)
    types = bytes(reader.compact_bytes())
    reader.skip_tags()
    return first, last, types


@dataclass(slots=True)
class ShareResult:
    """Result of one partition."""

    topic_id: UUID
    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader_id: int = 0
    leader_epoch: int = 0
    records: Sequence[LogSlice | memoryview] = ()
    acquired: Sequence[tuple[int, int, int]] = ()


def encode_share_fetch(
    correlation_id: int,
    version: int,
    results: Sequence[ShareResult],
    lock_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    error_code: int = 0,
    error_message: str | None = None,
) -> list[Part]:
    """Return the whole frame as a list of parts. Records stay slices of their files."""
    first = gathered = bytearray(_SIZE_BYTES)
    parts: list[Part] = [first]
    gathered += encode_response_header(SHARE_FETCH, version, correlation_id)
    gathered += p.INT32(0) + p.INT16(error_code) + p.nullable_compact_string(error_message) + p.INT32(lock_ms)
    topics = _by_topic(results)
    gathered += p.compact_array_length(len(topics))
    for topic_id, partitions in topics:
        gathered += topic_id.bytes + p.compact_array_length(len(partitions))
        for result in partitions:
            gathered += _encode_fetched(result)
            if result.records:
                gathered = bytearray()
                parts += (*result.records, gathered)
            gathered += p.compact_array_length(len(result.acquired))
            for acquired in result.acquired:
                gathered += _ACQUIRED.pack(*acquired, 0)
            gathered += p.NO_TAGS
        gathered += p.NO_TAGS
    gathered += encode_endpoints(endpoints) + p.NO_TAGS
    first[:_SIZE_BYTES] = p.INT32(sum(map(len, parts)) - _SIZE_BYTES)
    return parts


def _encode_fetched(result: ShareResult) -> bytes:
    """Encode the fields of a partition that precede its records."""
    size = p.unsigned_varint(sum(map(len, result.records)) + 1)
    if result.error_message is None and result.acknowledge_error_message is None:
        codes = result.error_code, 0, result.acknowledge_error_code, 0
        return _PLAIN.pack(result.partition, *codes, result.leader_id, result.leader_epoch, 0) + size
    return b"".join(
        (
            _INDEX_AND_ERROR.pack(result.partition, result.error_code),
            p.nullable_compact_string(result.error_message),
            p.INT16(result.acknowledge_error_code),
            p.nullable_compact_string(result.acknowledge_error_message),
            _LEADER.pack(result.leader_id, result.leader_epoch, 0),
            size,
        )
    )


def encode_share_acknowledge(
    correlation_id: int,
    version: int,
    results: Sequence[ShareResult],
    lock_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    error_code: int = 0,
    error_message: str | None = None,
) -> bytes:
    parts = [
        encode_response_header(SHARE_ACKNOWLEDGE, version, correlation_id),
        p.INT32(0),
        p.INT16(error_code),
        p.nullable_compact_string(error_message),
        p.INT32(lock_ms) if version >= RENEW_FROM else b"",
    ]
    topics = _by_topic(results)
    parts.append(p.compact_array_length(len(topics)))
    for topic_id, partitions in topics:
        parts += (topic_id.bytes, p.compact_array_length(len(partitions)))
        for result in partitions:
            parts += (
                _INDEX_AND_ERROR.pack(result.partition, result.error_code),
                p.nullable_compact_string(result.error_message),
                _LEADER.pack(result.leader_id, result.leader_epoch, 0),
                p.NO_TAGS,
            )
        parts.append(p.NO_TAGS)
    parts += (encode_endpoints(endpoints), p.NO_TAGS)
    return p.frame(*parts)


def _by_topic(results: Iterable[ShareResult]) -> list[tuple[UUID, list[ShareResult]]]:
    topics: dict[UUID, list[ShareResult]] = {}
    for result in results:
        topics.setdefault(result.topic_id, []).append(result)
    return list(topics.items())
