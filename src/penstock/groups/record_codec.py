"""The records of `__consumer_offsets` as bytes, in Kafka's layout, so that tools which read that topic work.

    key     kind 2 | group | what it is about              value   version 2 | fields
    1       topic, partition 4                             3  offset 8, leader epoch 4, metadata, time 8
                                                           4  the same, flexible, tag 0: topic id 16
    2       (classic group)                                3  protocol type, generation 4, protocol?, leader?, time 8,
                                                              members [id, instance?, client, host, rebalance ms 4,
                                                              session ms 4, subscription, assignment]
    3       (consumer group)                               0  epoch 4, tag 0: metadata hash 8
    5       member                                         0  instance?, rack?, client, host, topics [], regex?,
                                                              rebalance ms 4, assignor?, tag 0: classic protocols
    6       (target)                                       0  assignment epoch 4
    7       member                                         0  partitions [topic id 16, [index 4]]
    8       member                                         0  epoch 4, previous 4, state 1, assigned [], revoking []
    10-15   (share groups)                                 0  see `groups.share.codec`

Numbers are the bytes of a field; strings and byte strings carry their length, arrays their count; ? may be
null. Keys and classic values have lengths of fixed width; versions of value after the classic ones are
flexible (KIP-482). For any bytes, `decode_record` raises nothing but UnknownRecord. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from penstock.errors import ProtocolError
from penstock.groups.consumer.codec import (
    decode_consumer_group,
    decode_consumer_member,
    decode_current_assignment,
    decode_target_epoch,
    decode_target_member,
    encode_consumer_group,
    encode_consumer_member,
    encode_current_assignment,
    encode_target_epoch,
    encode_target_member,
)
from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ClassicMember,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    Key,
    OffsetKey,
    OffsetValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    Value,
)
from penstock.groups.share import codec as share_codec
from penstock.model import NO_TOPIC_ID, TopicId
from penstock.state_log.replaying import UnknownRecord
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

OFFSET_KINDS: Final = (0, 1)
OFFSET_KIND: Final = 1
CLASSIC_GROUP_KIND: Final = 2
CONSUMER_GROUP_KIND: Final = 3
CONSUMER_MEMBER_KIND: Final = 5
TARGET_EPOCH_KIND: Final = 6
TARGET_MEMBER_KIND: Final = 7
CURRENT_ASSIGNMENT_KIND: Final = 8

_OFFSET_HEAD = Struct(">hqi")
_OFFSET_WITHOUT_METADATA = Struct(">hqiBq")
_KEYS_KEPT = 16_384
"""Maximum number of cached offset keys. A consumer commits the same few partitions repeatedly."""
_TOPICS_KEPT = 4_096
"""Maximum number of cached topic ids."""
_FLEXIBLE = 4
"""First version of the values of offsets and classic groups that is flexible (KIP-482)."""


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Encode key and value; a tombstone has no value."""
    key = _KEY_ENCODERS[type(record.key)](record.key)
    return key, None if record.value is None else _VALUE_ENCODERS[type(record.value)](record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord:
    try:
        reader = Reader(memoryview(key))
        kind = reader.int16()
        if kind not in _KINDS:
            raise UnknownRecord(f"unknown record kind {kind}")
        decode_key, decode_value = _KINDS[kind]
        decoded_key = decode_key(reader)
        _check_end(reader)
        if value is None:
            return GroupRecord(decoded_key, None)
        reader = Reader(memoryview(value), max_elements=NO_LIMIT)
        decoded_value = decode_value(reader, reader.int16())
        _check_end(reader)
    except (ProtocolError, *MALFORMED) as error:
        raise UnknownRecord(f"damaged record: {error}") from error
    return GroupRecord(decoded_key, decoded_value)


def _check_end(reader: Reader) -> None:
    if reader.position != len(reader.data):
        raise UnknownRecord("bytes after the last field")


def _check_version(version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise UnknownRecord(f"unknown value version {version}")


# --- keys


@lru_cache(_KEYS_KEPT)
def encode_offset_key(key: OffsetKey) -> bytes:
    return p.INT16(OFFSET_KIND) + p.string(key.group_id) + p.string(key.topic) + p.INT32(key.partition)


def _decode_offset_key(reader: Reader) -> OffsetKey:
    return OffsetKey(reader.string(), reader.string(), reader.int32())


def _group_key(kind: int) -> Callable[[Any], bytes]:
    return lambda key: p.INT16(kind) + p.string(key.group_id)


def _member_key(kind: int) -> Callable[[Any], bytes]:
    return lambda key: p.INT16(kind) + p.string(key.group_id) + p.string(key.member_id)


# --- committed offsets


def encode_offset(value: OffsetValue) -> bytes:
    offset, leader_epoch, metadata, topic_id, commit_timestamp_ms = value
    tags = _topic_id_tags(topic_id)
    if not tags:
        head = _OFFSET_HEAD.pack(3, offset, leader_epoch)
        return head + p.string(metadata) + p.INT64(commit_timestamp_ms)
    if not metadata:
        return _OFFSET_WITHOUT_METADATA.pack(4, offset, leader_epoch, 1, commit_timestamp_ms) + tags
    head = _OFFSET_HEAD.pack(4, offset, leader_epoch)
    return head + p.compact_string(metadata) + p.INT64(commit_timestamp_ms) + tags


@lru_cache(_TOPICS_KEPT)
def _topic_id_tags(topic_id: TopicId) -> bytes:
    """Tagged fields with the topic id; empty for an offset without topic id, whose value needs no flexible version."""
    return b"" if topic_id == NO_TOPIC_ID else b"\x01" + p.tagged(0, topic_id.bytes)


def _decode_offset(reader: Reader, version: int) -> OffsetValue:
    _check_version(version, 4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= _FLEXIBLE else reader.string()
    commit_timestamp_ms = reader.int64()
    if version == 1:
        reader.int64()  # Expiry time, which clients of old versions chose.
    topic_id = NO_TOPIC_ID
    if version >= _FLEXIBLE:
        last = -1
        for _ in range(reader.tags()):
            last, end = reader.tag(last)
            if last == 0:
                topic_id = TopicId(reader.uuid())
                reader.close_tag(end)
            reader.position = end
    return OffsetValue(offset, leader_epoch, metadata, topic_id, commit_timestamp_ms)


# --- classic groups


def _encode_classic_group(value: ClassicGroupValue) -> bytes:
    parts = [
        p.INT16(3),
        p.string(value.protocol_type),
        p.INT32(value.generation),
        p.nullable_string(value.protocol_name),
        p.nullable_string(value.leader),
        p.INT64(value.state_timestamp_ms),
        p.array_length(len(value.members)),
    ]
    for member in value.members:
        parts += (
            p.string(member.member_id),
            p.nullable_string(member.instance_id),
            p.string(member.client_id),
            p.string(member.client_host),
            p.INT32(member.rebalance_timeout_ms),
            p.INT32(member.session_timeout_ms),
            p.bytes_(member.subscription),
            p.bytes_(member.assignment),
        )
    return b"".join(parts)


def _decode_classic_group(reader: Reader, version: int) -> ClassicGroupValue:
    _check_version(version, 4)
    flexible = version >= _FLEXIBLE
    string = reader.compact_string if flexible else reader.string
    nullable_string = reader.nullable_compact_string if flexible else reader.nullable_string
    array_length = reader.compact_array_length if flexible else reader.array_length
    protocol_type, generation = string(), reader.int32()
    protocol_name, leader = nullable_string(), nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else -1
    members = tuple(_decode_classic_member(reader, version) for _ in range(array_length()))
    if flexible:
        reader.skip_tags()
    return ClassicGroupValue(protocol_type, generation, protocol_name, leader, state_timestamp_ms, members)


def _decode_classic_member(reader: Reader, version: int) -> ClassicMember:
    flexible = version >= _FLEXIBLE
    string = reader.compact_string if flexible else reader.string
    nullable_string = reader.nullable_compact_string if flexible else reader.nullable_string
    bytes_ = reader.compact_bytes if flexible else reader.bytes_
    member_id = string()
    instance_id = nullable_string() if version >= 3 else None
    client_id, client_host = string(), string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = ClassicMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        # Version 0 has one timeout for session and rebalance.
        rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms,
        bytes(bytes_()),
        bytes(bytes_()),
    )
    if flexible:
        reader.skip_tags()
    return member


_KEY_ENCODERS: dict[type[Key], Callable[[Any], bytes]] = {
    OffsetKey: encode_offset_key,
    ClassicGroupKey: _group_key(CLASSIC_GROUP_KIND),
    ConsumerGroupKey: _group_key(CONSUMER_GROUP_KIND),
    ConsumerMemberKey: _member_key(CONSUMER_MEMBER_KIND),
    TargetEpochKey: _group_key(TARGET_EPOCH_KIND),
    TargetMemberKey: _member_key(TARGET_MEMBER_KIND),
    CurrentAssignmentKey: _member_key(CURRENT_ASSIGNMENT_KIND),
    **{
        key: (_member_key if has_member else _group_key)(kind)
        for kind, (key, has_member, _) in share_codec.KINDS.items()
    },
}
_VALUE_ENCODERS: dict[type[Value], Callable[[Any], bytes]] = {
    OffsetValue: encode_offset,
    ClassicGroupValue: _encode_classic_group,
    ConsumerGroupValue: encode_consumer_group,
    ConsumerMemberValue: encode_consumer_member,
    TargetEpochValue: encode_target_epoch,
    TargetMemberValue: encode_target_member,
    CurrentAssignmentValue: encode_current_assignment,
    **share_codec.ENCODERS,
}
_KINDS: dict[int, tuple[Callable[[Reader], Key], Callable[[Reader, int], Value]]] = {
    **dict.fromkeys(OFFSET_KINDS, (_decode_offset_key, _decode_offset)),
    CLASSIC_GROUP_KIND: (lambda reader: ClassicGroupKey(reader.string()), _decode_classic_group),
    CONSUMER_GROUP_KIND: (lambda reader: ConsumerGroupKey(reader.string()), decode_consumer_group),
    CONSUMER_MEMBER_KIND: (
        lambda reader: ConsumerMemberKey(reader.string(), reader.string()),
        decode_consumer_member,
    ),
    TARGET_EPOCH_KIND: (lambda reader: TargetEpochKey(reader.string()), decode_target_epoch),
    TARGET_MEMBER_KIND: (
        lambda reader: TargetMemberKey(reader.string(), reader.string()),
        decode_target_member,
    ),
    CURRENT_ASSIGNMENT_KIND: (
        lambda reader: CurrentAssignmentKey(reader.string(), reader.string()),
        decode_current_assignment,
    ),
    **{
        kind: (share_codec.key_decoder(key, has_member), decode)
        for kind, (key, has_member, decode) in share_codec.KINDS.items()
    },
}
