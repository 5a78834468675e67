"""Records of groups in `__consumer_offsets`: a key, and a value or None for a tombstone.

`record_codec` encodes them in Kafka's layout. The newest record of a key is valid, so a compacted log holds
the whole state of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from penstock.model import TopicId

Assignment: TypeAlias = dict[TopicId, frozenset[int]]
"""Partitions by topic id; topics without partitions are left out."""


class OffsetKey(NamedTuple):
    """Key of a committed offset. Key, value and record are tuples, because every commit creates them and
    dataclasses are slower.
    """

    group_id: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: TopicId
    """Id of the topic at the time of the commit, so that the offset does not apply to a later topic of the
    same name.
    """
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
    """Metadata of the member under the selected protocol."""
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
    """Hash of the subscribed topics and their partitions at the start of the epoch."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """Session timeout and supported protocols of a member that uses the classic protocol."""

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
    """Reconciliation state of a member, with Kafka's codes."""

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


@dataclass(frozen=True, slots=True)
class ShareMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareMemberValue:
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ShareGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupValue:
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class ShareTargetEpochKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareCurrentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareCurrentValue:
    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment


@dataclass(frozen=True, slots=True)
class ShareTopicsKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTopic:
    """Partitions of a topic that have, or are about to get, a state in `__share_group_state`."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShareTopicsValue:
    initializing: dict[TopicId, ShareTopic]
    initialized: dict[TopicId, ShareTopic]
    deleting: dict[TopicId, str]
    """Names of the topics whose states are being deleted, by topic id."""


Key: TypeAlias = (
    OffsetKey
    | ClassicGroupKey
    | ConsumerGroupKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetMemberKey
    | CurrentAssignmentKey
    | ShareMemberKey
    | ShareGroupKey
    | ShareTargetEpochKey
    | ShareTargetMemberKey
    | ShareCurrentKey
    | ShareTopicsKey
)
Value: TypeAlias = (
    OffsetValue
    | ClassicGroupValue
    | ConsumerGroupValue
    | ConsumerMemberValue
    | TargetEpochValue
    | TargetMemberValue
    | CurrentAssignmentValue
    | ShareMemberValue
    | ShareGroupValue
    | ShareCurrentValue
    | ShareTopicsValue
)


class GroupRecord(NamedTuple):
    key: Key
    value: Value | None
