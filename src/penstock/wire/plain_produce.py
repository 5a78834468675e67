"""Plain Produce requests (one topic, one partition, no transactional id), recognised by their first bytes.

Requests of a producer to one partition differ only in correlation id and records. The bytes between header
and records, called the *route*, are always the same, so a table of routes replaces the decoder. A route is
encoded from values that `decode_produce_request` has returned, and is located in a frame by its position. A
frame with the same bytes therefore has the same meaning; a frame in any other encoding has no known route.

    route, versions 3 to 8    transactional id 2 | acks 2 | timeout 4 | topics 4 | name 2 + n | partitions 4 | index 4
    route, from version 9     transactional id 1 | acks 2 | timeout 4 | topics 1 | name 1 + n | partitions 1 | index 4
    (version 13: topic id 16 instead of the name)
    then                      size 4, from version 9 on 1 to 5 | records | from version 9 on tags 3
"""

from __future__ import annotations

from struct import Struct

from penstock.errors import BrokerError
from penstock.wire.headers import RequestHeader, encode_request_header
from penstock.wire.produce import (
    ERROR_MESSAGE_FROM,
    FLEXIBLE_FROM,
    LOG_START_FROM,
    PRODUCE,
    TOPIC_ID_FROM,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopicResult,
    encode_produce_response,
)
from penstock.wire.produce_client import encode_produce_request
from penstock.wire.reader import MALFORMED

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_NAME_LENGTH_AT = 12
_AROUND_NAME = 22
"""Number of bytes of a route other than the topic's name, before version 9."""
_FLEXIBLE_NAME_LENGTH_AT = 8
_AROUND_FLEXIBLE_NAME = 13
"""The same from version 9 on, less one, because the encoded length of a name is its length plus one."""
_WITH_TOPIC_ID = 29
_TAGS = 3
_SIZE_PREFIX = 4


def split_plain(frame: memoryview, position: int, version: int) -> tuple[bytes, memoryview] | None:
    """Return the bytes that are the route if the request is plain, and its records; None if it is not plain.

    `position` is the end of the request header. The route is not checked, so only a known route has a
    meaning.
    """
    try:
        if version < FLEXIBLE_FROM:
            end = position + _AROUND_NAME + _INT16(frame, position + _NAME_LENGTH_AT)[0]
            stop = len(frame)
            start = end + 4
            size = _INT32(frame, end)[0]
        else:
            if version >= TOPIC_ID_FROM:
                end = position + _WITH_TOPIC_ID
            else:
                length = frame[position + _FLEXIBLE_NAME_LENGTH_AT]
                if length > 0x7F:
                    return None
                end = position + _AROUND_FLEXIBLE_NAME + length
            stop = len(frame) - _TAGS
            if frame[stop] or frame[stop + 1] or frame[stop + 2]:
                return None
            start, size = _read_size(frame, end)
    except MALFORMED:
        return None
    if size < 0 or start + size != stop:
        return None
    return bytes(frame[position:end]), frame[start:stop]


def _read_size(frame: memoryview, position: int) -> tuple[int, int]:
    """Position and size of the records from version 9 on. The size is -1 for null, and for an encoding that
    no client uses.
    """
    byte = frame[position]
    if byte < 0x80:
        return position + 1, byte - 1
    size = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + 1, size - 1 if byte else -1
    return position + 1, -1


def encode_route(version: int, request: ProduceRequest) -> bytes:
    """Route of a plain request: the bytes that every request with the same fields, other than header and
    records, has.
    """
    (topic,) = request.topics
    (partition,) = topic.partitions
    empty = topic._replace(partitions=[ProducePartition(partition.index, memoryview(b""))])
    encoded = encode_produce_request(0, version, None, request._replace(topics=[empty]))
    header = encode_request_header(RequestHeader(PRODUCE, version, 0, None))
    size_and_tags = 4 if version < FLEXIBLE_FROM else 1 + _TAGS
    return encoded[_SIZE_PREFIX + len(header) : len(encoded) - size_and_tags]


class PlainResponses:
    """Encoder of responses for one partition in one version. A response without an error is a copy of one
    response of `encode_produce_response`, with other offsets.
    """

    __slots__ = (
        "_after",
        "_before",
        "_has_log_start",
        "_index",
        "_name",
        "_pack",
        "_size",
        "_topic_id",
        "_version",
    )

    def __init__(self, version: int, request: ProduceRequest) -> None:
        (topic,) = request.topics
        self._version = version
        self._name = topic.name
        self._topic_id = topic.topic_id
        self._index = topic.partitions[0].index
        encoded = self._encode(0, ProduceResult(self._index))
        self._has_log_start = version >= LOG_START_FROM
        end = len(encoded) - _bytes_after_offsets(version)
        start = end - (24 if self._has_log_start else 16)
        offsets = encoded[start:end]
        assert offsets == b"\xff" * len(offsets), "the offsets of a response without an append are -1"
        self._before = encoded[2 * _SIZE_PREFIX : start]
        self._after = encoded[end:]
        self._size = len(encoded) - _SIZE_PREFIX
        offsets_format = "qqq" if self._has_log_start else "qq"
        self._pack = Struct(f">ii{len(self._before)}s{offsets_format}{len(self._after)}s").pack

    def encode(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Encode a response as a whole frame."""
        if self._has_log_start:
            return self._pack(
                self._size,
                correlation_id,
                self._before,
                base_offset,
                log_append_time_ms,
                log_start_offset,
                self._after,
            )
        return self._pack(
            self._size, correlation_id, self._before, base_offset, log_append_time_ms, self._after
        )

    def encode_refusal(self, correlation_id: int, error: BrokerError, log_start_offset: int = -1) -> bytes:
        """Encode a response with an error as a whole frame."""
        result = ProduceResult(self._index, log_start_offset=log_start_offset)
        result.refuse(error)
        return self._encode(correlation_id, result)

    def _encode(self, correlation_id: int, result: ProduceResult) -> bytes:
        topic = ProduceTopicResult(self._name, self._topic_id, [result])
        return encode_produce_response(correlation_id, self._version, [topic])


def _bytes_after_offsets(version: int) -> int:
    """Size of the fields after the offsets: record errors, error message, tags and throttle time."""
    if version >= FLEXIBLE_FROM:
        return 9
    return 10 if version >= ERROR_MESSAGE_FROM else 4
