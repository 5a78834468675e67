"""OffsetCommit, versions 2 to 10, coded by hand because consumers send it all the time, mostly for one or a
few partitions.

    request    group id | generation or member epoch 4 | member id | instance id (from 7) |
               retention 8 (2 to 4) | topics
    topic      name, or from 10 its id | partitions
    partition  index 4 | offset 8 | leader epoch 4 (from 6) | metadata
    response   throttle time 4 (from 3) | topics | partitions: index 4, error code 2

From version 8 the encoding is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.wire import primitives
from penstock.wire.apis import has_flexible_response_header
from penstock.wire.reader import MALFORMED, Reader, uuid_of

OFFSET_COMMIT: Final = 8
FIRST_VERSION: Final = 2
LAST_VERSION: Final = 10
THROTTLE_TIME_FROM: Final = 3
RETENTION_UNTIL: Final = 4
LEADER_EPOCH_FROM: Final = 6
INSTANCE_ID_FROM: Final = 7
FLEXIBLE_FROM: Final = 8
TOPIC_ID_FROM: Final = 10
NO_LEADER_EPOCH: Final = -1
NO_THROTTLE_TIME: Final = bytes(4)

_PLACE = Struct(">iq")
_PLACE_WITH_EPOCH = Struct(">iqi")
_RESULT: Final = Struct(">ih").pack
_FLEXIBLE_RESULT: Final = Struct(">ihx").pack
_ONE_RESULT: Final = Struct(">iih").pack
_ONE_FLEXIBLE_RESULT: Final = Struct(">Bihxxx").pack
"""Partition count 1, index and error code, followed by empty tagged fields of partition, topic and response."""
_COUNT: Final = primitives.array_length
_COMPACT_COUNT: Final = primitives.compact_array_length
_FRAME_START = Struct(">ii")
_LENGTH: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_INT32_AND_LENGTH: Final = Struct(">ih").unpack_from
_ONE_PLACE: Final = Struct(">iiqh").unpack_from
_ONE_PLACE_WITH_EPOCH: Final = Struct(">iiqih").unpack_from
_ONE_ELEMENT: Final = 2
"""Encoded length of a compact array with one element."""
_LONG: Final = 128
"""Smallest compact length that takes more than one byte."""
_NO_TAGS_OF_3: Final = bytes(3)
"""Empty tagged fields of the partition, the topic and the request."""
_CORRELATION_ID_BYTES = 4
_MIN_TOPIC_BYTES = 2
_MIN_PARTITION_BYTES = 13
_RESPONSE_STARTS: Final = {
    version: (primitives.NO_TAGS if has_flexible_response_header(OFFSET_COMMIT, version) else b"")
    + (NO_THROTTLE_TIME if version >= THROTTLE_TIME_FROM else b"")
    for version in range(FIRST_VERSION, LAST_VERSION + 1)
}
"""Bytes between the correlation id and the topics of a response, by version."""
_ONE_TOPIC_STARTS: Final = {
    version: start + (_COMPACT_COUNT(1) if version >= FLEXIBLE_FROM else _COUNT(1))
    for version, start in _RESPONSE_STARTS.items()
}


class CommitPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitTopic(NamedTuple):
    """Topic and its partitions. The topic is identified by name or, from version 10, by id."""

    name: str | None
    topic_id: TopicId | None
    partitions: list[CommitPartition]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[CommitTopic]


def decode_offset_commit_request(frame: memoryview, position: int, version: int) -> OffsetCommitRequest:
    plain = read_plain_commit(frame, position, version)
    return read_any_commit(frame, position, version) if plain is None else plain


def encode_offset_commit_response(
    correlation_id: int,
    version: int,
    topics: Sequence[CommitTopic],
    codes: Sequence[Sequence[int | None]],
    outcome: int,
) -> bytes:
    """Encode a response as a whole frame, with an error code for each partition of each topic. `outcome`
    takes the place of a code that is None.
    """
    if len(topics) == 1 and len(codes[0]) == 1:  # Nearly every response.
        code = codes[0][0]
        return _encode_one(correlation_id, version, topics[0], outcome if code is None else code)
    flexible = version >= FLEXIBLE_FROM
    count = _COMPACT_COUNT if flexible else _COUNT
    pack = _FLEXIBLE_RESULT if flexible else _RESULT
    parts = [_RESPONSE_STARTS[version], count(len(topics))]
    for topic, of_topic in zip(topics, codes, strict=True):
        parts.append(_topic_key(topic, version))
        parts.append(count(len(of_topic)))
        for partition, code in zip(topic.partitions, of_topic, strict=True):
            parts.append(pack(partition.partition, outcome if code is None else code))
        if flexible:
            parts.append(primitives.NO_TAGS)
    if flexible:
        parts.append(primitives.NO_TAGS)
    body = b"".join(parts)
    return _FRAME_START.pack(_CORRELATION_ID_BYTES + len(body), correlation_id) + body


def _encode_one(correlation_id: int, version: int, topic: CommitTopic, code: int) -> bytes:
    index = topic.partitions[0].partition
    result = (
        _ONE_FLEXIBLE_RESULT(_ONE_ELEMENT, index, code)
        if version >= FLEXIBLE_FROM
        else _ONE_RESULT(1, index, code)
    )
    body = _ONE_TOPIC_STARTS[version] + _topic_key(topic, version) + result
    return _FRAME_START.pack(_CORRELATION_ID_BYTES + len(body), correlation_id) + body


def read_plain_commit(frame: memoryview, position: int, version: int) -> OffsetCommitRequest | None:
    """Read a request for a single partition, which most requests are, in few steps. Returns None for any
    other request and for malformed bytes; `read_any_commit` decides about these.
    """
    try:
        return (_plain_flexible if version >= FLEXIBLE_FROM else _plain)(frame, position, version)
    except MALFORMED:
        return None


def read_any_commit(frame: memoryview, position: int, version: int) -> OffsetCommitRequest:
    """Read any valid request. Raises ProtocolError if it is malformed."""
    reader = Reader(frame, position)
    try:
        return _read_flexible(reader, version) if version >= FLEXIBLE_FROM else _read(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed OffsetCommit request: {error}") from None


def _plain(frame: memoryview, position: int, version: int) -> OffsetCommitRequest | None:
    (group_bytes,) = _LENGTH(frame, position)
    group_end = position + 2 + group_bytes
    generation, member_bytes = _INT32_AND_LENGTH(frame, group_end)
    member_end = group_end + 6 + member_bytes
    instance_bytes, topics = -1, member_end
    if version >= INSTANCE_ID_FROM:
        (instance_bytes,) = _LENGTH(frame, member_end)
        topics += 2 + max(0, instance_bytes)
    elif version <= RETENTION_UNTIL:
        topics += 8
    if min(group_bytes, member_bytes, instance_bytes + 1) < 0:
        return None
    topic = _plain_topic(frame, topics, version)
    if topic is None:
        return None
    return OffsetCommitRequest(
        str(frame[position + 2 : group_end], "utf-8"),
        generation,
        str(frame[group_end + 6 : member_end], "utf-8"),
        None if instance_bytes < 0 else str(frame[member_end + 2 : topics], "utf-8"),
        [topic],
    )


def _plain_topic(frame: memoryview, position: int, version: int) -> CommitTopic | None:
    topic_count, name_bytes = _INT32_AND_LENGTH(frame, position)
    name_end = position + 6 + name_bytes
    if version >= LEADER_EPOCH_FROM:
        count, index, offset, leader_epoch, metadata_bytes = _ONE_PLACE_WITH_EPOCH(frame, name_end)
        metadata_start = name_end + 22
    else:
        count, index, offset, metadata_bytes = _ONE_PLACE(frame, name_end)
        leader_epoch, metadata_start = NO_LEADER_EPOCH, name_end + 18
    end = metadata_start + metadata_bytes
    if topic_count != 1 or count != 1 or name_bytes < 0 or metadata_bytes < -1 or end > len(frame):
        return None
    name = str(frame[position + 6 : name_end], "utf-8")
    metadata = None if metadata_bytes < 0 else str(frame[metadata_start:end], "utf-8")
    return CommitTopic(name, None, [CommitPartition(index, offset, leader_epoch, metadata)])


def _plain_flexible(frame: memoryview, position: int, version: int) -> OffsetCommitRequest | None:
    """Read a flexible request whose lengths have one byte each: 0 for null, otherwise the number of bytes plus one."""
    group_size = frame[position]
    group_end = position + group_size
    (generation,) = _INT32(frame, group_end)
    member_start = group_end + 4
    member_size = frame[member_start]
    instance_start = member_start + member_size
    instance_size = frame[instance_start]
    topics = instance_start + (instance_size or 1)
    if not (group_size and member_size and group_size | member_size | instance_size < _LONG):
        return None
    topic = _plain_flexible_topic(frame, topics, version)
    if topic is None:
        return None
    return OffsetCommitRequest(
        str(frame[position + 1 : group_end], "utf-8"),
        generation,
        str(frame[member_start + 1 : instance_start], "utf-8"),
        str(frame[instance_start + 1 : topics], "utf-8") if instance_size else None,
        [topic],
    )


def _plain_flexible_topic(frame: memoryview, position: int, version: int) -> CommitTopic | None:
    key_start = position + 1
    key_size = 16 if version >= TOPIC_ID_FROM else frame[key_start]
    partitions = key_start + key_size
    index, offset, leader_epoch = _PLACE_WITH_EPOCH.unpack_from(frame, partitions + 1)
    metadata_start = partitions + 17
    metadata_size = frame[metadata_start]
    end = metadata_start + (metadata_size or 1)
    if not (frame[position] == frame[partitions] == _ONE_ELEMENT and frame[end : end + 3] == _NO_TAGS_OF_3):
        return None
    if not key_size or key_size | metadata_size >= _LONG:
        return None
    metadata = str(frame[metadata_start + 1 : end], "utf-8") if metadata_size else None
    place = [CommitPartition(index, offset, leader_epoch, metadata)]
    if version >= TOPIC_ID_FROM:
        return CommitTopic(None, TopicId(uuid_of(bytes(frame[key_start:partitions]))), place)
    return CommitTopic(str(frame[key_start + 1 : partitions], "utf-8"), None, place)


def _read(reader: Reader, version: int) -> OffsetCommitRequest:
    group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
    instance_id = reader.nullable_string() if version >= INSTANCE_ID_FROM else None
    if version <= RETENTION_UNTIL:
        reader.int64()
    topics = []
    for _ in range(reader.array_length(_MIN_TOPIC_BYTES)):
        name, partitions = reader.string(), []
        for _ in range(reader.array_length(_MIN_PARTITION_BYTES)):
            if version >= LEADER_EPOCH_FROM:
                index, offset, leader_epoch = reader.unpack(_PLACE_WITH_EPOCH)
            else:
                (index, offset), leader_epoch = reader.unpack(_PLACE), NO_LEADER_EPOCH
            partitions.append(CommitPartition(index, offset, leader_epoch, reader.nullable_string()))
        topics.append(CommitTopic(name, None, partitions))
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, topics)


def _read_flexible(reader: Reader, version: int) -> OffsetCommitRequest:
    group_id, generation, member_id = reader.compact_string(), reader.int32(), reader.compact_string()
    instance_id = reader.nullable_compact_string()
    topics = []
    for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
        name, topic_id = None, None
        if version >= TOPIC_ID_FROM:
            topic_id = TopicId(reader.uuid())
        else:
            name = reader.compact_string()
        partitions = []
        for _ in range(reader.compact_array_length(_MIN_PARTITION_BYTES)):
            index, offset, leader_epoch = reader.unpack(_PLACE_WITH_EPOCH)
            partitions.append(CommitPartition(index, offset, leader_epoch, reader.nullable_compact_string()))
            reader.skip_tags()
        reader.skip_tags()
        topics.append(CommitTopic(name, topic_id, partitions))
    reader.skip_tags()
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, topics)


def _topic_key(topic: CommitTopic, version: int) -> bytes:
    if version >= TOPIC_ID_FROM:
        return primitives.uuid(topic.topic_id)
    assert topic.name is not None
    return (
        primitives.compact_string(topic.name) if version >= FLEXIBLE_FROM else primitives.string(topic.name)
    )
