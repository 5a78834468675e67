"""Fetch, versions 0 to 18, coded by hand: a response is a list of parts, so that records go from file to
socket.

Versions 0 to 3 cannot carry record batches; they are decoded so that a handler can refuse them. Version 7
adds sessions, 9 leader epochs, 12 the flexible encoding, 13 topic ids. The client's side is in
`fetch_client`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.records.control import AbortedTransaction as AbortedTransaction
from penstock.records.log_slice import LogSlice
from penstock.wire import primitives
from penstock.wire.headers import encode_response_header
from penstock.wire.leader_hints import CurrentLeader, NodeEndpoint, encode_endpoints_tag, encode_leader
from penstock.wire.reader import MALFORMED, Reader
from penstock.wire.topic_key import TopicKeys

FETCH: Final = 1
THROTTLE_FROM: Final = 1
MAX_BYTES_FROM: Final = 3
ISOLATION_FROM: Final = 4
LOG_START_FROM: Final = 5
SESSION_FROM: Final = 7
LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
NODE_ENDPOINTS_FROM: Final = 16
DIRECTORY_ID_FROM: Final = 17
HIGH_WATERMARK_FROM: Final = 18

CLUSTER_ID_TAG: Final = 0
REPLICA_STATE_TAG: Final = 1
DIRECTORY_ID_TAG: Final = 0
HIGH_WATERMARK_TAG: Final = 1
FLUSHED_OFFSET_TAG: Final = 10_000
"""Tag of Penstock's own field, between brokers: the offset up to which a follower has fsynced."""
DAMAGED_TAG: Final = 10_001
"""Tag of Penstock's own field without content, between brokers: the follower's log is damaged, so it must not
join the in-sync replicas.
"""
DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADER_TAG: Final = 1
TOPIC_KEYS: Final = TopicKeys(FLEXIBLE_FROM, TOPIC_ID_FROM)

UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1

_SIZE_BYTES = 4
_WAIT_AND_MIN_BYTES = Struct(">ii")
_LIMITS_AND_SESSION = Struct(">ibii")
# partition | leader epoch (from 9) | offset | last fetched epoch (from 12) | log start (from 5) | max bytes
_PARTITION_0 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_THROTTLE_ERROR_SESSION = Struct(">ihi")
_UP_TO_WATERMARK = Struct(">ihq")
_UP_TO_LAST_STABLE = Struct(">ihqq")
_UP_TO_LOG_START = Struct(">ihqqq")
_EPOCH_AND_OFFSET = Struct(">iq")
_ABORTED = Struct(">qq")
_MIN_TOPIC_BYTES = 2
_MIN_PARTITION_BYTES = 16

Records: TypeAlias = bytes | bytearray | memoryview | LogSlice
Part: TypeAlias = bytes | bytearray | memoryview | LogSlice


@dataclass(slots=True)
class FetchPartition:
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    flushed_offset: int = -1
    is_damaged: bool = False


class FetchTopic(NamedTuple):
    """Topic and its partitions. The topic is identified by name or, from version 13, by id."""

    name: str | None
    topic_id: TopicId | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str | None
    topic_id: TopicId | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int
    min_bytes: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    replica_id: int = -1
    replica_epoch: int = -1
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    rack_id: str = ""
    cluster_id: str | None = None
    uses_topic_ids: bool = False


class DivergingEpoch(NamedTuple):
    """Largest leader epoch of the leader's log that is not above the follower's, and its end offset. The
    follower's log diverges from the leader's after that offset.
    """

    epoch: int
    end_offset: int


@dataclass(slots=True)
class FetchResult:
    """Result of one partition. `aborted_transactions` is None for read_uncommitted."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Records = b""
    diverging_epoch: tuple[int, int] | None = None
    current_leader: CurrentLeader | None = None


class FetchTopicResult(NamedTuple):
    name: str | None
    topic_id: TopicId | None
    partitions: list[FetchResult]


def decode_fetch_request(frame: memoryview, position: int, version: int) -> FetchRequest:
    reader = Reader(frame, position)
    try:
        request = _read_request(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed Fetch request: {error}") from None
    return request


def _read_request(reader: Reader, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id = reader.int32() if version < REPLICA_STATE_FROM else -1
    max_wait_ms, min_bytes = reader.unpack(_WAIT_AND_MIN_BYTES)
    request = FetchRequest(max_wait_ms, min_bytes, [], [], replica_id)
    request.uses_topic_ids = version >= TOPIC_ID_FROM
    if version >= SESSION_FROM:
        limits = reader.unpack(_LIMITS_AND_SESSION)
        request.max_bytes, request.isolation_level, request.session_id, request.session_epoch = limits
    elif version >= MAX_BYTES_FROM:
        request.max_bytes = reader.int32()
        request.isolation_level = reader.int8() if version >= ISOLATION_FROM else 0
    for _ in range(_count(reader, flexible, _MIN_TOPIC_BYTES)):
        request.topics.append(_read_topic(reader, version))
    if version >= SESSION_FROM:
        for _ in range(_count(reader, flexible, _MIN_TOPIC_BYTES)):
            request.forgotten.append(_read_forgotten(reader, version))
    if version >= RACK_FROM:
        request.rack_id = reader.compact_string() if flexible else reader.string()
    if flexible:
        _read_request_tags(reader, request, version)
    return request


def _read_topic(reader: Reader, version: int) -> FetchTopic:
    name, topic_id = TOPIC_KEYS.read(reader, version)
    flexible = version >= FLEXIBLE_FROM
    partitions = []
    for _ in range(_count(reader, flexible, _MIN_PARTITION_BYTES)):
        partitions.append(_read_partition(reader, version))
    if flexible:
        reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _read_partition(reader: Reader, version: int) -> FetchPartition:
    leader_epoch = last_fetched_epoch = log_start = -1
    if version >= FLEXIBLE_FROM:
        index, leader_epoch, offset, last_fetched_epoch, log_start, max_bytes = reader.unpack(_PARTITION_12)
    elif version >= LEADER_EPOCH_FROM:
        index, leader_epoch, offset, log_start, max_bytes = reader.unpack(_PARTITION_9)
    elif version >= LOG_START_FROM:
        index, offset, log_start, max_bytes = reader.unpack(_PARTITION_5)
    else:
        index, offset, max_bytes = reader.unpack(_PARTITION_0)
    partition = FetchPartition(index, offset, max_bytes, leader_epoch, last_fetched_epoch, log_start)
    if version >= FLEXIBLE_FROM:
        _read_partition_tags(reader, partition, version)
    return partition


def _read_partition_tags(reader: Reader, partition: FetchPartition, version: int) -> None:
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == DIRECTORY_ID_TAG and version >= DIRECTORY_ID_FROM:
            partition.replica_directory_id = reader.uuid()
            reader.close_tag(end)
        elif last == HIGH_WATERMARK_TAG and version >= HIGH_WATERMARK_FROM:
            partition.high_watermark = reader.int64()
            reader.close_tag(end)
        elif last == FLUSHED_OFFSET_TAG:
            partition.flushed_offset = reader.int64()
            reader.close_tag(end)
        elif last == DAMAGED_TAG:
            partition.is_damaged = True
        reader.position = end


def _read_forgotten(reader: Reader, version: int) -> ForgottenTopic:
    name, topic_id = TOPIC_KEYS.read(reader, version)
    flexible = version >= FLEXIBLE_FROM
    partitions = [reader.int32() for _ in range(_count(reader, flexible, 4))]
    if flexible:
        reader.skip_tags()
    return ForgottenTopic(name, topic_id, partitions)


def _read_request_tags(reader: Reader, request: FetchRequest, version: int) -> None:
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == CLUSTER_ID_TAG:
            request.cluster_id = reader.nullable_compact_string()
            reader.close_tag(end)
        elif last == REPLICA_STATE_TAG and version >= REPLICA_STATE_FROM:
            request.replica_id, request.replica_epoch = reader.int32(), reader.int64()
            reader.skip_tags()
            reader.close_tag(end)
        reader.position = end


def _count(reader: Reader, flexible: bool, element_bytes: int) -> int:
    return reader.compact_array_length(element_bytes) if flexible else reader.array_length(element_bytes)


def encode_fetch_response(
    correlation_id: int,
    version: int,
    *,
    topics: Sequence[FetchTopicResult],
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """Return the whole frame as a list of parts: encoded fields alternate with the records as they were given."""
    flexible = version >= FLEXIBLE_FROM
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    first = gathered = bytearray(_SIZE_BYTES)  # Placeholder, replaced when the size is known.
    parts: list[Part] = [first]
    gathered += encode_response_header(FETCH, version, correlation_id)
    if version >= SESSION_FROM:
        gathered += _THROTTLE_ERROR_SESSION.pack(throttle_time_ms, error_code, session_id)
    elif version >= THROTTLE_FROM:
        gathered += primitives.INT32(throttle_time_ms)
    gathered += put_count(len(topics))
    for topic in topics:
        gathered += TOPIC_KEYS.encode(topic.name, topic.topic_id, version)
        gathered += put_count(len(topic.partitions))
        for result in topic.partitions:
            gathered += _encode_result(result, version)
            if len(result.records):
                gathered = bytearray()
                parts += (result.records, gathered)
            if flexible:
                gathered += _encode_result_tags(result)
        if flexible:
            gathered += primitives.NO_TAGS
    if flexible:
        gathered += encode_endpoints_tag(node_endpoints if version >= NODE_ENDPOINTS_FROM else ())
    if not gathered:
        parts.pop()
    first[:_SIZE_BYTES] = primitives.INT32(sum(map(len, parts)) - _SIZE_BYTES)
    return parts


def _encode_result(result: FetchResult, version: int) -> bytes:
    """Encode the fields of a partition that precede its records."""
    index, error_code, high_watermark = result.partition, result.error_code, result.high_watermark
    length = len(result.records)
    if version < ISOLATION_FROM:
        return _UP_TO_WATERMARK.pack(index, error_code, high_watermark) + primitives.INT32(length)
    last_stable = result.last_stable_offset
    if version < LOG_START_FROM:
        fixed = _UP_TO_LAST_STABLE.pack(index, error_code, high_watermark, last_stable)
    else:
        log_start = result.log_start_offset
        fixed = _UP_TO_LOG_START.pack(index, error_code, high_watermark, last_stable, log_start)
    flexible = version >= FLEXIBLE_FROM
    aborted = _encode_aborted(result.aborted_transactions, flexible)
    replica = primitives.INT32(result.preferred_read_replica) if version >= RACK_FROM else b""
    size = primitives.unsigned_varint(length + 1) if flexible else primitives.INT32(length)
    return fixed + aborted + replica + size


def _encode_aborted(aborted: Sequence[AbortedTransaction] | None, flexible: bool) -> bytes:
    if aborted is None:
        return primitives.COMPACT_NULL if flexible else primitives.INT32(-1)
    tags = primitives.NO_TAGS if flexible else b""
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    return put_count(len(aborted)) + b"".join(_ABORTED.pack(*each) + tags for each in aborted)


def _encode_result_tags(result: FetchResult) -> bytes:
    if result.diverging_epoch is None and result.current_leader is None:
        return primitives.NO_TAGS
    fields = []
    if result.diverging_epoch is not None:
        epoch = _EPOCH_AND_OFFSET.pack(*result.diverging_epoch) + primitives.NO_TAGS
        fields.append(primitives.tagged(DIVERGING_EPOCH_TAG, epoch))
    if result.current_leader is not None:
        fields.append(primitives.tagged(CURRENT_LEADER_TAG, encode_leader(result.current_leader)))
    return primitives.unsigned_varint(len(fields)) + b"".join(fields)
