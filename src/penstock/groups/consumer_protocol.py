"""Subscriptions and assignments that members of protocol type "consumer" exchange in JoinGroup and SyncGroup.

A classic group does not interpret these bytes, except when it is converted to or from the consumer
protocol. Malformed bytes raise BrokerError(INCONSISTENT_GROUP_PROTOCOL) and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.wire import primitives
from penstock.wire.decoding import struct_reader
from penstock.wire.reader import MALFORMED, Reader

PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3

TopicPartitions = Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Subscription:
    version: int
    topics: frozenset[str]
    owned: TopicPartitions
    """Partitions that the member owns. Empty if the member revokes all partitions before it joins."""
    rack_id: str | None = None
    user_data: bytes | None = None
    generation: int = -1


def decode_subscription(data: bytes) -> Subscription:
    version, message = _decode("subscription", data)
    return Subscription(
        version=version,
        topics=frozenset(message.topics),
        owned=_by_topic(getattr(message, "owned_partitions", ())),
        rack_id=getattr(message, "rack_id", None),
        user_data=message.user_data,
        generation=getattr(message, "generation_id", -1),
    )


def decode_assignment(data: bytes) -> TopicPartitions:
    """Decode an assignment. Empty bytes are an empty assignment: the member has joined but not synced."""
    if not data:
        return {}
    _, message = _decode("assignment", data)
    return _by_topic(message.assigned_partitions)


def encode_subscription(subscription: Subscription) -> bytes:
    version = subscription.version
    parts = [
        primitives.INT16(version),
        _array(map(primitives.string, sorted(subscription.topics))),
        primitives.nullable_bytes(subscription.user_data),
    ]
    if version >= 1:
        parts.append(_topic_partitions(subscription.owned))
    if version >= 2:
        parts.append(primitives.INT32(subscription.generation))
    if version >= 3:
        parts.append(primitives.nullable_string(subscription.rack_id))
    return b"".join(parts)


def encode_assignment(assignment: TopicPartitions, version: int) -> bytes:
    """Encode an assignment. All versions have the same fields."""
    return primitives.INT16(version) + _topic_partitions(assignment) + primitives.nullable_bytes(None)


def _topic_partitions(partitions: TopicPartitions) -> bytes:
    return _array(
        primitives.string(topic) + _array(map(primitives.INT32, sorted(numbers)))
        for topic, numbers in sorted(partitions.items())
    )


def _array(elements: Iterable[bytes]) -> bytes:
    parts = list(elements)
    return primitives.array_length(len(parts)) + b"".join(parts)


def _by_topic(entries: Iterable[Any]) -> TopicPartitions:
    partitions: dict[str, frozenset[int]] = {}
    for entry in entries:
        if entry.partitions:
            partitions[entry.topic] = partitions.get(entry.topic, frozenset()) | frozenset(entry.partitions)
    return partitions


def _decode(what: str, data: bytes) -> tuple[int, Any]:
    """Decode bytes that start with a version. A newer version is read as the newest known one, because new
    versions only append fields.
    """
    reader = Reader(memoryview(data))
    try:
        version = reader.int16()
        if version < 0:
            raise ProtocolError(f"unknown version {version}")
        version = min(version, NEWEST_VERSION)
        return version, _reader(what, version)(reader)
    except (ProtocolError, *MALFORMED) as error:
        message = f"malformed {what} of the consumer protocol: {error}"
        raise BrokerError(ErrorCode.inconsistent_group_protocol, message) from None


@cache
def _reader(what: str, version: int) -> Callable[[Reader], Any]:
    module = import_module(f"kio.schema.consumer_protocol_{what}.v{version}.data")
    return struct_reader(getattr(module, f"ConsumerProtocol{what.capitalize()}"))
