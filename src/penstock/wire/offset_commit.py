"""OffsetCommit, versions 2 to 10, by hand: consumers send it all the time, mostly for one or a few
partitions.

request    group id | generation or member epoch 4 | member id | instance id (from 7) | retention 8 (2 to 4) |
topics topic      name, or from 10 its id | partitions partition  index 4 | offset 8 | leader epoch 4 (from 6)
| metadata response   throttle time 4 (from 3) | topics | partitions: index 4, error code 2

From 8 the encoding is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.wire import primitives
from penstock.wire.headers import encode_response_header
from penstock.wire.reader import MALFORMED, Reader

OFFSET_COMMIT: Final = 8
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
_RESULT = Struct(">ih")
_FLEXIBLE_RESULT = Struct(">ihx")
_MIN_TOPIC_BYTES = 2
_MIN_PARTITION_BYTES = 13


class CommitPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitTopic(NamedTuple):
    """A topic by name, or from version 10 on by id."""

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
    reader = Reader(frame, position)
    try:
        return _read_flexible(reader, version) if version >= FLEXIBLE_FROM else _read(reader, version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed OffsetCommit request: {error}") from None


def encode_offset_commit_response(
    correlation_id: int, version: int, topics: Sequence[CommitTopic], codes: Sequence[Sequence[int]]
) -> bytes:
    """Encode a response as a whole frame, with an error code for each partition of each topic."""
    flexible = version >= FLEXIBLE_FROM
    count = primitives.compact_array_length if flexible else primitives.array_length
    pack = _FLEXIBLE_RESULT.pack if flexible else _RESULT.pack
    parts = [
        encode_response_header(OFFSET_COMMIT, version, correlation_id),
        NO_THROTTLE_TIME if version >= THROTTLE_TIME_FROM else b"",
        count(len(topics)),
    ]
    for topic, of_topic in zip(topics, codes, strict=True):
        parts += (_topic_key(topic, version), count(len(topic.partitions)))
        parts += [
            pack(partition.partition, code)
            for partition, code in zip(topic.partitions, of_topic, strict=True)
        ]
        if flexible:
            parts.append(primitives.NO_TAGS)
    if flexible:
        parts.append(primitives.NO_TAGS)
    return primitives.frame(*parts)


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
