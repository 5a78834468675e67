"""Codec of the records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's layout.

    key     about it     value, version 0, flexible
    10      member       rack?, client, host, topics []
    11      group        epoch 4, metadata hash 8
    12      target       assignment epoch 4
    13      member       partitions [topic id 16, [index 4]]
    14      member       epoch 4, previous 4, state 1, partitions [topic id 16, [index 4]]
    15      group        initializing [topic id 16, name, [index 4]], initialized [the same],
                         deleting [topic id 16, name]

Malformed values raise ProtocolError, or an error of the reader. Used by `record_codec` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import ProtocolError
from penstock.groups.consumer.codec import (
    decode_assignment,
    decode_target_epoch,
    decode_target_member,
    encode_assignment,
)
from penstock.groups.records import (
    Key,
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
    ShareTopic,
    ShareTopicsKey,
    ShareTopicsValue,
    Value,
)
from penstock.model import TopicId
from penstock.wire import primitives as p
from penstock.wire.reader import Reader

_VERSION = p.INT16(0)
_STABLE = p.INT8(0)
_MIN_TOPIC_BYTES = 18


def _check_version(version: int) -> None:
    if version != 0:
        raise ProtocolError(f"unknown value version {version}")


def _encode_member(value: ShareMemberValue) -> bytes:
    topics = sorted(value.subscribed_topics)
    return b"".join(
        (
            _VERSION,
            p.nullable_compact_string(value.rack_id),
            p.compact_string(value.client_id),
            p.compact_string(value.client_host),
            p.compact_array_length(len(topics)),
            *map(p.compact_string, topics),
            p.NO_TAGS,
        )
    )


def _decode_member(reader: Reader, version: int) -> ShareMemberValue:
    _check_version(version)
    rack_id = reader.nullable_compact_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = frozenset(reader.compact_string() for _ in range(reader.compact_array_length()))
    reader.skip_tags()
    return ShareMemberValue(rack_id, client_id, client_host, topics)


def _encode_group(value: ShareGroupValue) -> bytes:
    return _VERSION + p.INT32(value.epoch) + p.INT64(value.metadata_hash) + p.NO_TAGS


def _decode_group(reader: Reader, version: int) -> ShareGroupValue:
    _check_version(version)
    value = ShareGroupValue(reader.int32(), reader.int64())
    reader.skip_tags()
    return value


def _encode_current(value: ShareCurrentValue) -> bytes:
    epochs = p.INT32(value.member_epoch) + p.INT32(value.previous_member_epoch)
    return _VERSION + epochs + _STABLE + encode_assignment(value.assigned) + p.NO_TAGS


def _decode_current(reader: Reader, version: int) -> ShareCurrentValue:
    _check_version(version)
    member_epoch, previous_member_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    value = ShareCurrentValue(member_epoch, previous_member_epoch, decode_assignment(reader))
    reader.skip_tags()
    return value


def _encode_topics(value: ShareTopicsValue) -> bytes:
    deleting = [
        topic_id.bytes + p.compact_string(name) + p.NO_TAGS for topic_id, name in value.deleting.items()
    ]
    return b"".join(
        (
            _VERSION,
            _encode_states(value.initializing),
            _encode_states(value.initialized),
            p.compact_array_length(len(deleting)),
            *deleting,
            p.NO_TAGS,
        )
    )


def _encode_states(topics: Mapping[TopicId, ShareTopic]) -> bytes:
    parts = [p.compact_array_length(len(topics))]
    for topic_id, topic in sorted(topics.items()):
        parts += (topic_id.bytes, p.compact_string(topic.name), p.compact_array_length(len(topic.partitions)))
        parts += [p.INT32(index) for index in sorted(topic.partitions)]
        parts.append(p.NO_TAGS)
    return b"".join(parts)


def _decode_topics(reader: Reader, version: int) -> ShareTopicsValue:
    _check_version(version)
    initializing, initialized = _decode_states(reader), _decode_states(reader)
    deleting = {}
    for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
        topic_id = TopicId(reader.uuid())
        deleting[topic_id] = reader.compact_string()
        reader.skip_tags()
    reader.skip_tags()
    return ShareTopicsValue(initializing, initialized, deleting)


def _decode_states(reader: Reader) -> dict[TopicId, ShareTopic]:
    topics = {}
    for _ in range(reader.compact_array_length(_MIN_TOPIC_BYTES)):
        topic_id, name = TopicId(reader.uuid()), reader.compact_string()
        count = reader.compact_array_length(element_bytes=4)
        topics[topic_id] = ShareTopic(name, frozenset(reader.int32() for _ in range(count)))
        reader.skip_tags()
    return topics


def key_decoder(key: Callable[..., Key], has_member: bool) -> Callable[[Reader], Key]:
    if has_member:
        return lambda reader: key(reader.string(), reader.string())
    return lambda reader: key(reader.string())


KINDS: Final[dict[int, tuple[type[Any], bool, Callable[[Reader, int], Value]]]] = {
    10: (ShareMemberKey, True, _decode_member),
    11: (ShareGroupKey, False, _decode_group),
    12: (ShareTargetEpochKey, False, decode_target_epoch),
    13: (ShareTargetMemberKey, True, decode_target_member),
    14: (ShareCurrentKey, True, _decode_current),
    15: (ShareTopicsKey, False, _decode_topics),
}
"""For each kind of record: key type, whether the key contains a member id, and decoder of the value."""

ENCODERS: Final[dict[type[Any], Callable[[Any], bytes]]] = {
    ShareMemberValue: _encode_member,
    ShareGroupValue: _encode_group,
    ShareCurrentValue: _encode_current,
    ShareTopicsValue: _encode_topics,
}
