"""The client's side of Produce, versions 0 to 13: for the internal client and for tests."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.wire import primitives
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.leader_hints import NodeEndpoint, read_endpoints_tag, read_leader
from penstock.wire.produce import (
    ACKS_AND_TIMEOUT,
    APPEND_TIME_FROM,
    CURRENT_LEADER_TAG,
    ERROR_MESSAGE_FROM,
    FLEXIBLE_FROM,
    LOG_START_FROM,
    PRODUCE,
    TOPIC_KEYS,
    TRANSACTIONAL_FROM,
    ProduceRequest,
    ProduceResult,
    ProduceTopicResult,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader


class ProduceResponse(NamedTuple):
    topics: list[ProduceTopicResult]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


def encode_produce_request(
    correlation_id: int, version: int, client_id: str | None, request: ProduceRequest
) -> bytes:
    """Encode a request as a whole frame."""
    flexible = version >= FLEXIBLE_FROM
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    tags = primitives.NO_TAGS if flexible else b""
    parts: list[bytes | memoryview] = []
    parts.append(encode_request_header(RequestHeader(PRODUCE, version, correlation_id, client_id)))
    if version >= TRANSACTIONAL_FROM:
        put_id = primitives.nullable_compact_string if flexible else primitives.nullable_string
        parts.append(put_id(request.transactional_id))
    parts += (ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms), put_count(len(request.topics)))
    for topic in request.topics:
        parts += (TOPIC_KEYS.encode(topic.name, topic.topic_id, version), put_count(len(topic.partitions)))
        for partition in topic.partitions:
            records = partition.records
            # An array length and a byte length have the same encoding.
            length = put_count(-1 if records is None else len(records))
            parts += (primitives.INT32(partition.index), length, records or b"", tags)
        parts.append(tags)
    parts.append(tags)
    return primitives.frame(*parts)


def decode_produce_response(frame: memoryview, version: int) -> ProduceResponse:
    _, position = decode_response_header(PRODUCE, version, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        response = _read_response(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed Produce response: {error}") from None
    return response


def _read_response(reader: Reader, version: int) -> ProduceResponse:
    flexible = version >= FLEXIBLE_FROM
    count = reader.compact_array_length() if flexible else reader.array_length()
    topics = [_read_topic_result(reader, version) for _ in range(count)]
    throttle_time_ms = reader.int32() if version > 0 else 0
    endpoints = read_endpoints_tag(reader) if flexible else []
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_topic_result(reader: Reader, version: int) -> ProduceTopicResult:
    name, topic_id = TOPIC_KEYS.read(reader, version)
    flexible = version >= FLEXIBLE_FROM
    count = reader.compact_array_length() if flexible else reader.array_length()
    results = [_read_result(reader, version) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return ProduceTopicResult(name, topic_id, results)


def _read_result(reader: Reader, version: int) -> ProduceResult:
    flexible = version >= FLEXIBLE_FROM
    result = ProduceResult(reader.int32(), reader.int16(), reader.int64())
    if version >= APPEND_TIME_FROM:
        result.log_append_time_ms = reader.int64()
    if version >= LOG_START_FROM:
        result.log_start_offset = reader.int64()
    if version >= ERROR_MESSAGE_FROM:
        result.invalid_records = _read_record_errors(reader, flexible)
        result.error_message = reader.nullable_compact_string() if flexible else reader.nullable_string()
    if flexible:
        last = -1
        for _ in range(reader.tags()):
            last, end = reader.tag(last)
            if last == CURRENT_LEADER_TAG:
                result.current_leader = read_leader(reader)
                reader.close_tag(end)
            reader.position = end
    return result


def _read_record_errors(reader: Reader, flexible: bool) -> tuple[int, ...]:
    places = []
    for _ in range(reader.compact_array_length() if flexible else reader.array_length()):
        places.append(reader.int32())
        if flexible:
            reader.nullable_compact_string()
            reader.skip_tags()
        else:
            reader.nullable_string()
    return tuple(places)
