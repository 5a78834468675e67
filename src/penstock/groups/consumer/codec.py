"""Codec of the values of consumer groups (KIP-848) in `__consumer_offsets`; the module `record_codec` shows
their layout.

Malformed values raise ProtocolError, or an error of the reader. Used by `record_codec` alone.
"""

from __future__ import annotations

from penstock.errors import ProtocolError
from penstock.groups.records import (
    Assignment,
    ClassicProtocols,
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentAssignmentValue,
    MemberState,
    TargetEpochValue,
    TargetMemberValue,
)
from penstock.model import TopicId
from penstock.wire import primitives as p
from penstock.wire.reader import Reader

_PRESENT = b"\x01"
"""Byte before a nullable tagged structure that is present."""


def _check_version(version: int) -> None:
    if version != 0:
        raise ProtocolError(f"unknown value version {version}")


def encode_consumer_group(value: ConsumerGroupValue) -> bytes:
    tags = b"\x01" + p.tagged(0, p.INT64(value.metadata_hash)) if value.metadata_hash else p.NO_TAGS
    return p.INT16(0) + p.INT32(value.epoch) + tags


def decode_consumer_group(reader: Reader, version: int) -> ConsumerGroupValue:
    _check_version(version)
    epoch = reader.int32()
    metadata_hash, last = 0, -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == 0:
            metadata_hash = reader.int64()
            reader.close_tag(end)
        reader.position = end
    return ConsumerGroupValue(epoch, metadata_hash)


def encode_consumer_member(value: ConsumerMemberValue) -> bytes:
    topics = sorted(value.subscribed_topics)
    return b"".join(
        (
            p.INT16(0),
            p.nullable_compact_string(value.instance_id),
            p.nullable_compact_string(value.rack_id),
            p.compact_string(value.client_id),
            p.compact_string(value.client_host),
            p.compact_array_length(len(topics)),
            *map(p.compact_string, topics),
            p.nullable_compact_string(value.subscribed_regex),
            p.INT32(value.rebalance_timeout_ms),
            p.nullable_compact_string(value.server_assignor),
            _encode_classic_protocols(value.classic),
        )
    )


def _encode_classic_protocols(classic: ClassicProtocols | None) -> bytes:
    if classic is None:
        return p.NO_TAGS
    parts = [_PRESENT, p.INT32(classic.session_timeout_ms), p.compact_array_length(len(classic.protocols))]
    for name, metadata in classic.protocols:
        parts += (p.compact_string(name), p.compact_bytes(metadata), p.NO_TAGS)
    return b"\x01" + p.tagged(0, b"".join((*parts, p.NO_TAGS)))


def decode_consumer_member(reader: Reader, version: int) -> ConsumerMemberValue:
    _check_version(version)
    instance_id, rack_id = reader.nullable_compact_string(), reader.nullable_compact_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = frozenset(reader.compact_string() for _ in range(reader.compact_array_length()))
    regex = reader.nullable_compact_string()
    rebalance_timeout_ms = reader.int32()
    assignor = reader.nullable_compact_string()
    classic, last = None, -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == 0:
            classic = _decode_classic_protocols(reader)
            reader.close_tag(end)
        reader.position = end
    return ConsumerMemberValue(
        instance_id, rack_id, client_id, client_host, topics, regex, rebalance_timeout_ms, assignor, classic
    )


def _decode_classic_protocols(reader: Reader) -> ClassicProtocols | None:
    if reader.unsigned_varint() == 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.compact_array_length(element_bytes=3)):
        protocols.append((reader.compact_string(), bytes(reader.compact_bytes())))
        reader.skip_tags()
    reader.skip_tags()
    return ClassicProtocols(session_timeout_ms, tuple(protocols))


def encode_target_epoch(value: TargetEpochValue) -> bytes:
    return p.INT16(0) + p.INT32(value.assignment_epoch) + p.NO_TAGS


def decode_target_epoch(reader: Reader, version: int) -> TargetEpochValue:
    _check_version(version)
    value = TargetEpochValue(reader.int32())
    reader.skip_tags()
    return value


def encode_target_member(value: TargetMemberValue) -> bytes:
    return p.INT16(0) + encode_assignment(value.assignment) + p.NO_TAGS


def decode_target_member(reader: Reader, version: int) -> TargetMemberValue:
    _check_version(version)
    value = TargetMemberValue(decode_assignment(reader))
    reader.skip_tags()
    return value


def encode_current_assignment(value: CurrentAssignmentValue) -> bytes:
    return b"".join(
        (
            p.INT16(0),
            p.INT32(value.member_epoch),
            p.INT32(value.previous_member_epoch),
            p.INT8(value.state),
            encode_assignment(value.assigned),
            encode_assignment(value.pending_revocation),
            p.NO_TAGS,
        )
    )


def decode_current_assignment(reader: Reader, version: int) -> CurrentAssignmentValue:
    _check_version(version)
    member_epoch, previous_member_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in set(MemberState):
        raise ProtocolError(f"unknown member state {state}")
    assigned, pending_revocation = decode_assignment(reader), decode_assignment(reader)
    reader.skip_tags()
    return CurrentAssignmentValue(
        member_epoch, previous_member_epoch, MemberState(state), assigned, pending_revocation
    )


def encode_assignment(assignment: Assignment) -> bytes:
    parts = [p.compact_array_length(len(assignment))]
    for topic_id, partitions in sorted(assignment.items()):
        parts += (topic_id.bytes, p.compact_array_length(len(partitions)))
        parts += [p.INT32(partition) for partition in sorted(partitions)]
        parts.append(p.NO_TAGS)
    return b"".join(parts)


def decode_assignment(reader: Reader) -> Assignment:
    assignment: Assignment = {}
    for _ in range(reader.compact_array_length(element_bytes=18)):
        topic_id = TopicId(reader.uuid())
        count = reader.compact_array_length(element_bytes=4)
        partitions = frozenset(reader.int32() for _ in range(count))
        if partitions:
            assignment[topic_id] = partitions
        reader.skip_tags()
    return assignment
