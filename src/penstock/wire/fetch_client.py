"""The client's side of Fetch, versions 0 to 18: for followers, the internal client and tests."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.wire import primitives
from penstock.wire.fetch import (
    CLUSTER_ID_TAG,
    CURRENT_LEADER_TAG,
    DAMAGED_TAG,
    DIRECTORY_ID_FROM,
    DIRECTORY_ID_TAG,
    DIVERGING_EPOCH_TAG,
    FETCH,
    FLEXIBLE_FROM,
    FLUSHED_OFFSET_TAG,
    HIGH_WATERMARK_FROM,
    HIGH_WATERMARK_TAG,
    ISOLATION_FROM,
    LEADER_EPOCH_FROM,
    LOG_START_FROM,
    MAX_BYTES_FROM,
    RACK_FROM,
    REPLICA_STATE_FROM,
    REPLICA_STATE_TAG,
    SESSION_FROM,
    THROTTLE_FROM,
    TOPIC_KEYS,
    UNKNOWN_HIGH_WATERMARK,
    AbortedTransaction,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopicResult,
)
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.leader_hints import NodeEndpoint, read_endpoints_tag, read_leader
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

_REPLICA_STATE = Struct(">iq")
# max wait | min bytes | max bytes | isolation | session id | session epoch
_UP_TO_SESSION = Struct(">iiibii")
# partition | leader epoch | offset | last fetched epoch | log start | max bytes
_PARTITION_12 = Struct(">iiqiqi")
# One tag: the flushed offset, of 8 bytes.
_ONLY_FLUSHED = b"\x01" + primitives.unsigned_varint(FLUSHED_OFFSET_TAG) + b"\x08"
_THROTTLE_ERROR_SESSION = Struct(">ihi")
# partition | error | high watermark | last stable offset | log start
_UP_TO_LOG_START = Struct(">ihqqq")


class FetchResponse(NamedTuple):
    """Decoded response. The `records` of its results are views of the received frame."""

    topics: list[FetchTopicResult]
    error_code: int
    session_id: int
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


def encode_fetch_request(
    correlation_id: int, version: int, client_id: str | None, request: FetchRequest
) -> bytes:
    """Encode a request as a whole frame."""
    flexible = version >= FLEXIBLE_FROM
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    tags = primitives.NO_TAGS if flexible else b""
    parts = [encode_request_header(RequestHeader(FETCH, version, correlation_id, client_id))]
    if version < REPLICA_STATE_FROM:
        parts.append(primitives.INT32(request.replica_id))
    parts.append(_encode_limits(request, version))
    parts.append(put_count(len(request.topics)))
    for topic in request.topics:
        parts += (TOPIC_KEYS.encode(topic.name, topic.topic_id, version), put_count(len(topic.partitions)))
        parts += (_encode_partition(partition, version) for partition in topic.partitions)
        parts.append(tags)
    if version >= SESSION_FROM:
        parts.append(put_count(len(request.forgotten)))
        for name, topic_id, partitions in request.forgotten:
            parts += (TOPIC_KEYS.encode(name, topic_id, version), put_count(len(partitions)))
            parts += map(primitives.INT32, partitions)
            parts.append(tags)
    if version >= RACK_FROM:
        parts.append((primitives.compact_string if flexible else primitives.string)(request.rack_id))
    if flexible:
        parts.append(_encode_request_tags(request, version))
    return primitives.frame(*parts)


def _encode_limits(request: FetchRequest, version: int) -> bytes:
    waits, max_bytes = (request.max_wait_ms, request.min_bytes), request.max_bytes
    if version >= SESSION_FROM:
        session = (request.session_id, request.session_epoch)
        return _UP_TO_SESSION.pack(*waits, max_bytes, request.isolation_level, *session)
    parts = [*map(primitives.INT32, waits)]
    if version >= MAX_BYTES_FROM:
        parts.append(primitives.INT32(max_bytes))
    if version >= ISOLATION_FROM:
        parts.append(primitives.INT8(request.isolation_level))
    return b"".join(parts)


def _encode_partition(partition: FetchPartition, version: int) -> bytes:
    if version >= FLEXIBLE_FROM:
        fixed = _PARTITION_12.pack(
            partition.partition,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.max_bytes,
        )
        return fixed + _encode_partition_tags(partition, version)
    parts = [primitives.INT32(partition.partition)]
    if version >= LEADER_EPOCH_FROM:
        parts.append(primitives.INT32(partition.current_leader_epoch))
    parts.append(primitives.INT64(partition.fetch_offset))
    if version >= LOG_START_FROM:
        parts.append(primitives.INT64(partition.log_start_offset))
    parts.append(primitives.INT32(partition.max_bytes))
    return b"".join(parts)


def _encode_partition_tags(partition: FetchPartition, version: int) -> bytes:
    directory_id = partition.replica_directory_id if version >= DIRECTORY_ID_FROM else None
    high_watermark = partition.high_watermark if version >= HIGH_WATERMARK_FROM else UNKNOWN_HIGH_WATERMARK
    flushed, is_damaged = partition.flushed_offset, partition.is_damaged
    if flushed >= 0 and not is_damaged and directory_id is None and high_watermark == UNKNOWN_HIGH_WATERMARK:
        return _ONLY_FLUSHED + primitives.INT64(flushed)
    tags = []
    if directory_id is not None:
        tags.append(primitives.tagged(DIRECTORY_ID_TAG, directory_id.bytes))
    if high_watermark != UNKNOWN_HIGH_WATERMARK:
        tags.append(primitives.tagged(HIGH_WATERMARK_TAG, primitives.INT64(high_watermark)))
    if flushed >= 0:
        tags.append(primitives.tagged(FLUSHED_OFFSET_TAG, primitives.INT64(flushed)))
    if is_damaged:
        tags.append(primitives.tagged(DAMAGED_TAG, b""))
    return primitives.unsigned_varint(len(tags)) + b"".join(tags)


def _encode_request_tags(request: FetchRequest, version: int) -> bytes:
    tags = []
    if request.cluster_id is not None:
        tags.append(primitives.tagged(CLUSTER_ID_TAG, primitives.compact_string(request.cluster_id)))
    if version >= REPLICA_STATE_FROM and request.replica_id >= 0:
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + primitives.NO_TAGS
        tags.append(primitives.tagged(REPLICA_STATE_TAG, state))
    return primitives.unsigned_varint(len(tags)) + b"".join(tags)


def decode_fetch_response(frame: memoryview, version: int) -> FetchResponse:
    _, position = decode_response_header(FETCH, version, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        response = _read_response(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed Fetch response: {error}") from None
    return response


def _read_response(reader: Reader, version: int) -> FetchResponse:
    throttle_time_ms = error_code = session_id = 0
    if version >= SESSION_FROM:
        throttle_time_ms, error_code, session_id = reader.unpack(_THROTTLE_ERROR_SESSION)
    elif version >= THROTTLE_FROM:
        throttle_time_ms = reader.int32()
    topics = [_read_topic(reader, version) for _ in range(_count(reader, version))]
    endpoints = read_endpoints_tag(reader) if version >= FLEXIBLE_FROM else []
    return FetchResponse(topics, error_code, session_id, throttle_time_ms, endpoints)


def _read_topic(reader: Reader, version: int) -> FetchTopicResult:
    name, topic_id = TOPIC_KEYS.read(reader, version)
    results = [_read_result(reader, version) for _ in range(_count(reader, version))]
    if version >= FLEXIBLE_FROM:
        reader.skip_tags()
    return FetchTopicResult(name, topic_id, results)


def _read_result(reader: Reader, version: int) -> FetchResult:
    flexible = version >= FLEXIBLE_FROM
    if version >= LOG_START_FROM:
        result = FetchResult(*reader.unpack(_UP_TO_LOG_START))
    else:
        result = FetchResult(reader.int32(), reader.int16(), reader.int64())
        if version >= ISOLATION_FROM:
            result.last_stable_offset = reader.int64()
    if version >= ISOLATION_FROM:
        result.aborted_transactions = _read_aborted(reader, flexible)
    if version >= RACK_FROM:
        result.preferred_read_replica = reader.int32()
    result.records = (reader.nullable_compact_bytes() if flexible else reader.nullable_bytes()) or b""
    if flexible:
        _read_result_tags(reader, result)
    return result


def _read_aborted(reader: Reader, flexible: bool) -> list[AbortedTransaction] | None:
    count = reader.nullable_compact_array_length() if flexible else reader.nullable_array_length()
    if count < 0:
        return None
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(reader.int64(), reader.int64()))
        if flexible:
            reader.skip_tags()
    return aborted


def _read_result_tags(reader: Reader, result: FetchResult) -> None:
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == DIVERGING_EPOCH_TAG:
            result.diverging_epoch = DivergingEpoch(reader.int32(), reader.int64())
            reader.skip_tags()
            reader.close_tag(end)
        elif last == CURRENT_LEADER_TAG:
            result.current_leader = read_leader(reader)
            reader.close_tag(end)
        reader.position = end


def _count(reader: Reader, version: int) -> int:
    return reader.compact_array_length() if version >= FLEXIBLE_FROM else reader.array_length()
