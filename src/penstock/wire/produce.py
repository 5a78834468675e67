"""Produce, versions 0 to 13, coded by hand: records stay in the memory where they were received, and a
response takes few steps.

Versions 0 to 2 have old message formats; they are decoded so that a handler can refuse them with an
explanation. Version 9 adds the flexible encoding, 10 the new leader in a response (KIP-951), 13 topic ids
instead of names. The client's side is in `produce_client`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import BrokerError, InvalidBatch, ProtocolError
from penstock.model import TopicId
from penstock.wire import primitives
from penstock.wire.headers import encode_response_header
from penstock.wire.leader_hints import CurrentLeader, NodeEndpoint, encode_endpoints_tag, encode_leader
from penstock.wire.reader import MALFORMED, Reader
from penstock.wire.topic_key import TopicKeys

PRODUCE: Final = 0

TRANSACTIONAL_FROM: Final = 3
APPEND_TIME_FROM: Final = 2
LOG_START_FROM: Final = 5
ERROR_MESSAGE_FROM: Final = 8
FLEXIBLE_FROM: Final = 9
LEADER_HINTS_FROM: Final = 10
TOPIC_ID_FROM: Final = 13
CURRENT_LEADER_TAG: Final = 0
TOPIC_KEYS: Final = TopicKeys(FLEXIBLE_FROM, TOPIC_ID_FROM)

ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX_ERROR_OFFSET = Struct(">ihq")
_WITH_APPEND_TIME = Struct(">ihqq")
_WITH_LOG_START = Struct(">ihqqq")
_RECORD_ERROR = Struct(">ih")
_FLEXIBLE_RECORD_ERROR = Struct(">i2x")  # No message, no tagged fields.
_MIN_TOPIC_BYTES = 2
_MIN_PARTITION_BYTES = 5


@dataclass(slots=True)
class ProducePartition:
    """Batch of one partition, as a view of the memory in which it was received."""

    index: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """Topic and its partitions. The topic is identified by name or, from version 13, by id."""

    name: str | None
    topic_id: TopicId | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


@dataclass(slots=True, eq=False)
class ProduceResult:
    """Result of one partition's batch."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    invalid_records: tuple[int, ...] = ()
    """Indexes of the invalid records in the batch (KIP-467). They share the error message."""
    current_leader: CurrentLeader | None = None

    def refuse(self, error: BrokerError) -> None:
        """Turn the result into an error. The log start offset stays."""
        self.error_code = error.code
        self.error_message = str(error)
        if isinstance(error, InvalidBatch):
            self.invalid_records = error.records
        self.base_offset = -1
        self.log_append_time_ms = -1


@dataclass(slots=True)
class ProduceTopicResult:
    name: str | None
    topic_id: TopicId | None
    partitions: list[ProduceResult]


def decode_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    reader = Reader(frame, position)
    try:
        request = _read_request(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed Produce request: {error}") from None
    return request


def _read_request(reader: Reader, version: int) -> ProduceRequest:
    flexible = version >= FLEXIBLE_FROM
    transactional_id = None
    if version >= TRANSACTIONAL_FROM:
        transactional_id = reader.nullable_compact_string() if flexible else reader.nullable_string()
    acks, timeout_ms = reader.unpack(ACKS_AND_TIMEOUT)
    topics = []
    if flexible:
        for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
            topics.append(_read_flexible_topic(reader, version))
        reader.skip_tags()
    else:
        for _ in range(reader.array_length(_MIN_TOPIC_BYTES)):
            topics.append(_read_topic(reader))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_topic(reader: Reader) -> ProduceTopic:
    name = reader.string()
    partitions = []
    for _ in range(reader.array_length(_MIN_PARTITION_BYTES)):
        partitions.append(ProducePartition(reader.int32(), reader.nullable_bytes()))
    return ProduceTopic(name, None, partitions)


def _read_flexible_topic(reader: Reader, version: int) -> ProduceTopic:
    name, topic_id = TOPIC_KEYS.read(reader, version)
    partitions = []
    for _ in range(reader.compact_array_length(_MIN_PARTITION_BYTES)):
        partitions.append(ProducePartition(reader.int32(), reader.nullable_compact_bytes()))
        reader.skip_tags()
    reader.skip_tags()
    return ProduceTopic(name, topic_id, partitions)


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[ProduceTopicResult],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode a response as a whole frame."""
    parts = [encode_response_header(PRODUCE, version, correlation_id)]
    if version >= FLEXIBLE_FROM:
        parts.append(primitives.compact_array_length(len(topics)))
        for topic in topics:
            _put_flexible_topic(parts, topic, version)
        parts.append(primitives.INT32(throttle_time_ms))
        parts.append(encode_endpoints_tag(node_endpoints if version >= LEADER_HINTS_FROM else ()))
    else:
        parts.append(primitives.INT32(len(topics)))
        for topic in topics:
            _put_topic(parts, topic, version)
        if version > 0:
            parts.append(primitives.INT32(throttle_time_ms))
    return primitives.frame(*parts)


def _put_topic(parts: list[bytes], topic: ProduceTopicResult, version: int) -> None:
    parts.append(TOPIC_KEYS.encode(topic.name, topic.topic_id, version))
    parts.append(primitives.INT32(len(topic.partitions)))
    for result in topic.partitions:
        index, error_code, base_offset = result.index, result.error_code, result.base_offset
        if version >= LOG_START_FROM:
            append_time, log_start = result.log_append_time_ms, result.log_start_offset
            parts.append(_WITH_LOG_START.pack(index, error_code, base_offset, append_time, log_start))
        elif version >= APPEND_TIME_FROM:
            parts.append(_WITH_APPEND_TIME.pack(index, error_code, base_offset, result.log_append_time_ms))
        else:
            parts.append(_INDEX_ERROR_OFFSET.pack(index, error_code, base_offset))
        if version >= ERROR_MESSAGE_FROM:
            parts += (
                primitives.INT32(len(result.invalid_records)),
                b"".join(_RECORD_ERROR.pack(place, -1) for place in result.invalid_records),
                primitives.nullable_string(result.error_message),
            )


def _put_flexible_topic(parts: list[bytes], topic: ProduceTopicResult, version: int) -> None:
    parts.append(TOPIC_KEYS.encode(topic.name, topic.topic_id, version))
    parts.append(primitives.compact_array_length(len(topic.partitions)))
    for result in topic.partitions:
        parts += (
            _WITH_LOG_START.pack(
                result.index,
                result.error_code,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            ),
            primitives.compact_array_length(len(result.invalid_records)),
            b"".join(_FLEXIBLE_RECORD_ERROR.pack(place) for place in result.invalid_records),
            primitives.nullable_compact_string(result.error_message),
            _encode_leader_tag(result.current_leader) if version >= LEADER_HINTS_FROM else primitives.NO_TAGS,
        )
    parts.append(primitives.NO_TAGS)


def _encode_leader_tag(leader: CurrentLeader | None) -> bytes:
    if leader is None:
        return primitives.NO_TAGS
    return b"\x01" + primitives.tagged(CURRENT_LEADER_TAG, encode_leader(leader))
