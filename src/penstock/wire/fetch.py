"""Fetch, versions 0 to 18, by hand: a response is a list of parts, so that records go from file to socket.

Versions 0 to 3 cannot carry record batches; they decode, so that a handler can refuse them. Sessions come
with 7, leader epochs with 9, the flexible encoding with 12, topic ids with 13. The client's side is in
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
from penstock.storage.log_slice import LogSlice
from penstock.wire import primitives
from penstock.wire.headers import encode_response_header
from penstock.wire.leader_hints import CurrentLeader, NodeEndpoint, encode_endpoints, encode_leader
from penstock.wire.reader import MALFORMED, Reader

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
DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADER_TAG: Final = 1
NODE_ENDPOINTS_TAG: Final = 0

UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1

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


class FetchTopic(NamedTuple):
    """By name, or from version 13 by id."""

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


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class DivergingEpoch(NamedTuple):
    """The largest epoch not above the fetcher's, and where it ends: the fetcher's log is wrong after that."""

    epoch: int
    end_offset: int


@dataclass(slots=True)
class FetchResult:
    """What one partition answers. `aborted_transactions` is None for a reader that did not ask."""

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
        raise ProtocolError(f"a malformed Fetch request: {error}") from None
    return request


def _read_request(reader: Reader, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id = reader.int32() if version < REPLICA_STATE_FROM else -1
    request = FetchRequest(reader.int32(), reader.int32(), [], [], replica_id)
    request.uses_topic_ids = version >= TOPIC_ID_FROM
    if version >= MAX_BYTES_FROM:
        request.max_bytes = reader.int32()
    if version >= ISOLATION_FROM:
        request.isolation_level = reader.int8()
    if version >= SESSION_FROM:
        request.session_id = reader.int32()
        request.session_epoch = reader.int32()
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
    name, topic_id = read_topic_key(reader, version)
    flexible = version >= FLEXIBLE_FROM
    partitions = []
    for _ in range(_count(reader, flexible, _MIN_PARTITION_BYTES)):
        partitions.append(_read_partition(reader, version))
    if flexible:
        reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _read_partition(reader: Reader, version: int) -> FetchPartition:
    index = reader.int32()
    leader_epoch = reader.int32() if version >= LEADER_EPOCH_FROM else -1
    offset = reader.int64()
    last_fetched_epoch = reader.int32() if version >= FLEXIBLE_FROM else -1
    log_start_offset = reader.int64() if version >= LOG_START_FROM else -1
    partition = FetchPartition(
        index, offset, reader.int32(), leader_epoch, last_fetched_epoch, log_start_offset
    )
    if version >= FLEXIBLE_FROM:
        last = -1
        for _ in range(reader.tags()):
            last, end = reader.tag(last)
            if last == DIRECTORY_ID_TAG and version >= DIRECTORY_ID_FROM:
                partition.replica_directory_id = reader.uuid()
                reader.close_tag(end)
            elif last == HIGH_WATERMARK_TAG and version >= HIGH_WATERMARK_FROM:
                partition.high_watermark = reader.int64()
                reader.close_tag(end)
            reader.position = end
    return partition


def _read_forgotten(reader: Reader, version: int) -> ForgottenTopic:
    name, topic_id = read_topic_key(reader, version)
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
    """The whole frame, in parts: what stands between the records, and the records as they were given."""
    response = _Parts(encode_response_header(FETCH, version, correlation_id))
    flexible = version >= FLEXIBLE_FROM
    if version >= THROTTLE_FROM:
        response.put(primitives.INT32(throttle_time_ms))
    if version >= SESSION_FROM:
        response.put(primitives.INT16(error_code), primitives.INT32(session_id))
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    response.put(put_count(len(topics)))
    for topic in topics:
        key = encode_topic_key(topic.name, topic.topic_id, version)
        response.put(key, put_count(len(topic.partitions)))
        for result in topic.partitions:
            _put_result(response, result, version)
        if flexible:
            response.put(primitives.NO_TAGS)
    if flexible:
        response.put(_encode_response_tags(node_endpoints if version >= NODE_ENDPOINTS_FROM else ()))
    return response.finish()


class _Parts:
    """A frame under way: small bytes are gathered, records are set between them."""

    __slots__ = ("_gathered", "_parts", "_size")

    def __init__(self, header: bytes) -> None:
        self._gathered = bytearray(4)  # the size, once it is known
        self._gathered += header
        self._parts: list[Part] = [self._gathered]
        self._size = -4

    def put(self, *fields: bytes) -> None:
        for each in fields:
            self._gathered += each

    def put_records(self, records: Records) -> None:
        self._size += len(self._gathered) + len(records)
        self._gathered = bytearray()
        self._parts += (records, self._gathered)

    def finish(self) -> list[Part]:
        first = self._parts[0]
        assert isinstance(first, bytearray)
        first[:4] = primitives.INT32(self._size + len(self._gathered))
        if not self._gathered:
            self._parts.pop()
        return self._parts


_FIXED = {
    0: Struct(">ihq"),
    ISOLATION_FROM: Struct(">ihqq"),
    LOG_START_FROM: Struct(">ihqqq"),
}


def _put_result(response: _Parts, result: FetchResult, version: int) -> None:
    flexible = version >= FLEXIBLE_FROM
    fixed: tuple[int, ...] = (result.partition, result.error_code, result.high_watermark)
    if version >= LOG_START_FROM:
        response.put(_FIXED[LOG_START_FROM].pack(*fixed, result.last_stable_offset, result.log_start_offset))
    elif version >= ISOLATION_FROM:
        response.put(_FIXED[ISOLATION_FROM].pack(*fixed, result.last_stable_offset))
    else:
        response.put(_FIXED[0].pack(*fixed))
    if version >= ISOLATION_FROM:
        _put_aborted(response, result.aborted_transactions, flexible)
    if version >= RACK_FROM:
        response.put(primitives.INT32(result.preferred_read_replica))
    length = len(result.records)
    response.put(primitives.unsigned_varint(length + 1) if flexible else primitives.INT32(length))
    if length:
        response.put_records(result.records)
    if flexible:
        response.put(_encode_result_tags(result))


def _put_aborted(response: _Parts, aborted: Sequence[AbortedTransaction] | None, flexible: bool) -> None:
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    response.put(put_count(-1 if aborted is None else len(aborted)))
    for transaction in aborted or ():
        response.put(_ABORTED.pack(*transaction))
        if flexible:
            response.put(primitives.NO_TAGS)


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


def _encode_response_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    if not endpoints:
        return primitives.NO_TAGS
    return b"\x01" + primitives.tagged(NODE_ENDPOINTS_TAG, encode_endpoints(endpoints))


def read_topic_key(reader: Reader, version: int) -> tuple[str | None, TopicId | None]:
    if version >= TOPIC_ID_FROM:
        return None, TopicId(reader.uuid())
    return (reader.compact_string() if version >= FLEXIBLE_FROM else reader.string()), None


def encode_topic_key(name: str | None, topic_id: TopicId | None, version: int) -> bytes:
    if version >= TOPIC_ID_FROM:
        return primitives.uuid(topic_id)
    assert name is not None
    return primitives.compact_string(name) if version >= FLEXIBLE_FROM else primitives.string(name)
