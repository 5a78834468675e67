"""The classic group protocol of the raw driver, packed by hand; only versions without the flexible encoding.

FindCoordinator 2, JoinGroup 5, SyncGroup 3, Heartbeat 3, OffsetCommit 7. A body starts at the correlation
id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.frames import frame

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 10, 11, 12, 14
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
NOT_YET = frozenset({14, 15, 16})
"""Retriable errors: the coordinator is loading, not available, or on another broker."""
PROTOCOL = "range"


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error_code: int
    generation: int
    leader: str
    member_id: str
    members: tuple[str, ...]
    """Members of the group; only the leader gets them."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error_code: int
    partitions: tuple[int, ...]


def find_coordinator_request(correlation_id: int, group: str) -> bytes:
    return frame(FIND_COORDINATOR, 2, correlation_id, _text(group) + b"\x00")


def join_request(
    correlation_id: int, group: str, member_id: str, topic: str, session_ms: int, rebalance_ms: int
) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + _text(topic) + struct.pack(">i", -1)
    protocols = struct.pack(">i", 1) + _text(PROTOCOL) + _blob(subscription)
    timeouts = struct.pack(">ii", session_ms, rebalance_ms)
    body = _text(group) + timeouts + _text(member_id) + _NO_TEXT + _text("consumer") + protocols
    return frame(JOIN_GROUP, 5, correlation_id, body)


def sync_request(
    correlation_id: int,
    group: str,
    generation: int,
    member_id: str,
    topic: str,
    assignments: Mapping[str, Sequence[int]],
) -> bytes:
    shares = b"".join(
        _text(member) + _blob(_assignment(topic, partitions)) for member, partitions in assignments.items()
    )
    head = _member(group, generation, member_id)
    return frame(SYNC_GROUP, 3, correlation_id, head + struct.pack(">i", len(assignments)) + shares)


def heartbeat_request(correlation_id: int, group: str, generation: int, member_id: str) -> bytes:
    return frame(HEARTBEAT, 3, correlation_id, _member(group, generation, member_id))


def commit_request(
    correlation_id: int, group: str, generation: int, member_id: str, topic: str, partition: int, offset: int
) -> bytes:
    place = struct.pack(">i", 1) + _text(topic) + struct.pack(">iiqi", 1, partition, offset, -1) + _text("")
    return frame(OFFSET_COMMIT, 7, correlation_id, _member(group, generation, member_id) + place)


def read_error(body: bytes) -> int:
    """Error code of a FindCoordinator or Heartbeat response."""
    return int(struct.unpack_from(">h", body, 8)[0])


def read_commit(body: bytes) -> int:
    """Error code of the only partition, the last field of the response."""
    return int(struct.unpack_from(">h", body, len(body) - 2)[0])


def read_join(body: bytes) -> JoinAnswer:
    error_code, generation = struct.unpack_from(">hi", body, 8)
    _, position = _read_text(body, 14)
    leader, position = _read_text(body, position)
    member_id, position = _read_text(body, position)
    (count,) = struct.unpack_from(">i", body, position)
    position += 4
    members = []
    for _ in range(count):
        member, position = _read_text(body, position)
        _, position = _read_text(body, position)
        (length,) = struct.unpack_from(">i", body, position)
        position += 4 + int(length)
        members.append(member)
    return JoinAnswer(error_code, generation, leader, member_id, tuple(members))


def read_sync(body: bytes) -> SyncAnswer:
    error_code, length = struct.unpack_from(">hi", body, 8)
    if error_code or length <= 0:
        return SyncAnswer(error_code, ())
    _, position = _read_text(body, 20)
    (count,) = struct.unpack_from(">i", body, position)
    return SyncAnswer(error_code, struct.unpack_from(f">{count}i", body, position + 4))


_NO_TEXT = struct.pack(">h", -1)


def _member(group: str, generation: int, member_id: str) -> bytes:
    return _text(group) + struct.pack(">i", generation) + _text(member_id) + _NO_TEXT


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    places = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + _text(topic) + places + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _blob(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _read_text(body: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", body, position)
    end = position + 2 + max(0, int(length))
    return body[position + 2 : end].decode(), end
