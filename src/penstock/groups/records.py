"""What is remembered of groups in `__consumer_offsets`: each record a key, and its value or None once it is gone.

Plain values; `record_codec` turns them into bytes, in Kafka's layout. The newest record of a key counts, so a group's
state is what replaying a compacted log leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from penstock.model import TopicId

Assignment: TypeAlias = dict[TopicId, frozenset[int]]
"""Partitions by topic id; a topic without partitions is left out."""


class OffsetKey(NamedTuple):
    """(A tuple, like its value and the record: there is one in every commit, and a dataclass takes longer to make.)"""

    group_id: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: TopicId
    """So that an offset is never taken for one of a later topic of the same name."""
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ClassicGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """What the member said under the protocol that was chosen."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupValue:
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[ClassicMember, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupValue:
    epoch: int
    metadata_hash: int
    """Of the topics the group reads and their partitions, as they were when the epoch began."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member that still speaks the classic protocol joined with."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: frozenset[str]
    subscribed_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class TargetMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetMemberValue:
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    group_id: str
    member_id: str


class MemberState(IntEnum):
    """Kafka's codes."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class CurrentAssignmentValue:
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment


Key: TypeAlias = (
    OffsetKey
    | ClassicGroupKey
    | ConsumerGroupKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetMemberKey
    | CurrentAssignmentKey
)
Value: TypeAlias = (
    OffsetValue
    | ClassicGroupValue
    | ConsumerGroupValue
    | ConsumerMemberValue
    | TargetEpochValue
    | TargetMemberValue
    | CurrentAssignmentValue
)


class GroupRecord(NamedTuple):
    key: Key
    value: Value | None
