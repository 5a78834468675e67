"""What both kinds of group have in common: what they are asked, what they answer, and the `Step` that comes of it.

A group is pure: requests and the time go in, a `Step` comes out. Its state moves at once; the answers of a step are
given only when its records are committed. Where they cannot be appended, the whole shard is read again from its log,
so a group never has to take anything back. Made and called by `shard` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, Self, TypeAlias

from penstock.errors import ErrorCode
from penstock.groups.records import Assignment, GroupRecord

Ticket: TypeAlias = object
"""Stands for a request that waits for its answer; a group keeps it and hands it back, nothing else."""

NO_GENERATION = -1
NO_MEMBER = ""


class GroupKind(StrEnum):
    """As ListGroups tells it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupState(StrEnum):
    """As ListGroups and DescribeGroups tell it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    """Drawn by the caller, for a member that has none."""
    requires_known_member_id: bool
    """Whether a new member first gets its id, and joins with it in a second request (KIP-394)."""
    supports_skipping_assignment: bool
    """Whether a returning static leader can be told that its assignment still stands (KIP-814)."""


@dataclass(frozen=True, slots=True)
class JoinResult:
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """For the leader: id, instance id and metadata of every member."""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class LeaveResult:
    errors: tuple[ErrorCode, ...]
    """One for each member that was named, in order."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """KIP-848. None means: as before."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed_topics: frozenset[str] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: Assignment | None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    error: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """None: as before."""


Result: TypeAlias = JoinResult | SyncResult | LeaveResult | ConsumerHeartbeatResult | ErrorCode
"""An answer; an ErrorCode alone is that of a classic Heartbeat."""


@dataclass(slots=True)
class Step:
    """What came of one request or of time passing: records to append together, then answers to give."""

    records: list[GroupRecord] = field(default_factory=list)
    answers: list[tuple[Ticket, Result]] = field(default_factory=list)

    def __iadd__(self, later: Step) -> Self:
        self.records += later.records
        self.answers += later.answers
        return self


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as DescribeGroups tells it, and what ConsumerGroupDescribe adds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""
    rack_id: str | None = None
    member_epoch: int = -1
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    current: Assignment = field(default_factory=dict)
    target: Assignment = field(default_factory=dict)
    is_classic: bool = True


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    kind: GroupKind
    state: GroupState
    protocol_type: str
    protocol_name: str
    """The assignor, for a consumer group."""
    members: tuple[DescribedMember, ...]
    epoch: int = -1
    assignment_epoch: int = -1


class Group(Protocol):
    """A group of either kind, as its shard sees it."""

    group_id: str
    kind: GroupKind

    @property
    def state(self) -> GroupState: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def is_blank(self) -> bool:
        """Whether nobody was ever let in: nothing of it is in the log."""

    @property
    def member_count(self) -> int: ...

    @property
    def empty_since_ms(self) -> int | None:
        """When its last member left; None while it has members, or never had any."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest; it may turn out to be nothing."""

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> Step: ...

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> Step: ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """The classic Heartbeat: it changes nothing that is remembered, and costs next to nothing."""

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, now_ms: int) -> Step: ...

    def tick(self, now_ms: int) -> Step:
        """Time has passed: members whose session ended are out, rebalances that waited long enough go on."""

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """BrokerError unless this member may commit offsets in this generation (or member epoch) now; it also counts
        as a sign of life of a classic member. Generation -1 and no member id: someone outside the group, or in a
        transaction a client that does not say who it is (KIP-447)."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """OffsetFetch 9 names the member: BrokerError when it is not one, or of another epoch."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that members are known to be subscribed to."""

    def reads(self, topic: str) -> bool:
        """Whether a member is subscribed to the topic, or may be, for all one can tell."""

    def describe(self) -> GroupDescription: ...

    def tombstones(self) -> list[GroupRecord]:
        """What makes the log forget the group; its offsets are not among them."""

    def give_up(self, error: ErrorCode) -> Step:
        """The shard moves away or is read again: everybody who waits is told so. The group is not used any more."""
