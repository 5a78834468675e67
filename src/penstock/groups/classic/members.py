"""Members of a classic group, with totals that would otherwise need an iteration over all members: waiting
joins, supported protocols, instance ids, memory.

Every change goes through `ClassicMembers`, which keeps the totals correct; `ClassicState` decides the
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer_protocol import decode_subscription
from penstock.groups.group import JoinRequest, Ticket
from penstock.groups.records import ClassicMember

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """True until the member's first generation begins."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @property
    def is_waiting(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def described_bytes(self) -> int:
        return described_bytes(self.member_id, self.instance_id, self.client_id, self.protocols)

    def says(self, protocols: Protocols) -> bool:
        return self.protocols == distinct(protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def is_described_by(self, value: ClassicMember, protocol_name: str) -> bool:
        """True if the record describes this member as it is, apart from the assignment."""
        is_supported = any(name == protocol_name for name, _ in self.protocols)
        return is_supported and self.saved(protocol_name, value.assignment) == value

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def saved(self, protocol_name: str | None, assignment: bytes) -> ClassicMember:
        return ClassicMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> ClassicGroupMember:
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            distinct(request.protocols),
            is_new=True,
        )

    @classmethod
    def restored(cls, value: ClassicMember, protocol_name: str) -> ClassicGroupMember:
        return cls(
            value.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.session_timeout_ms,
            value.rebalance_timeout_ms,
            ((protocol_name, value.subscription),),
            value.assignment,
        )


class ClassicMembers:
    def __init__(self) -> None:
        self._by_id: dict[str, ClassicGroupMember] = {}
        self._by_instance: dict[str, ClassicGroupMember] = {}
        self._pending: set[str] = set()
        """Member ids that were given to clients that have not joined with them yet (KIP-394)."""
        self._supporters: dict[str, int] = {}
        """Number of members that support each protocol."""
        self.joining = 0
        """Number of members with a JoinGroup request that waits for its response."""
        self.held_bytes = 0
        self._topics: frozenset[str] | None = None
        self._topics_are_known = False

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str | None) -> ClassicGroupMember | None:
        return None if member_id is None else self._by_id.get(member_id)

    def __getitem__(self, member_id: str) -> ClassicGroupMember:
        return self._by_id[member_id]

    @property
    def size(self) -> int:
        """Number of members, including pending ones."""
        return len(self._by_id) + len(self._pending)

    @property
    def have_all_joined(self) -> bool:
        return self.joining == len(self._by_id) and not self._pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def instance(self, instance_id: str | None) -> ClassicGroupMember | None:
        return None if instance_id is None else self._by_instance.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that the member exists and, if an instance id is given, that the member holds it (KIP-345)."""
        if instance_id is not None:
            holder = self._by_instance.get(instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder.member_id != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self._by_id else ErrorCode.unknown_member_id

    def is_pending(self, member_id: str) -> bool:
        return member_id in self._pending

    def add_pending(self, member_id: str) -> None:
        self._pending.add(member_id)
        self.held_bytes += len(member_id)

    def discard_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            self._pending.remove(member_id)
            self.held_bytes -= len(member_id)

    def add(self, member: ClassicGroupMember) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member
        self._count(member, 1)

    def remove(self, member: ClassicGroupMember) -> None:
        """Remove a member. It must not have a waiting request."""
        assert not member.is_waiting
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._count(member, -1)

    def apply(self, recorded: Sequence[ClassicMember], protocol_name: str) -> None:
        """Set the members to those of a record, in its order. A member that the record describes as it is
        keeps its waiting requests and its other protocols, which records do not contain.
        """
        values = {value.member_id: value for value in recorded}
        for member in tuple(self):
            value = values.get(member.member_id)
            if value is None or not member.is_described_by(value, protocol_name):
                self.remove(member)
        for value in recorded:
            known = self._by_id.pop(value.member_id, None)
            if known is None:
                self.add(ClassicGroupMember.restored(value, protocol_name))
            else:
                self._by_id[value.member_id] = known
                known.assignment = value.assignment

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        del self._by_id[member.member_id]
        self.held_bytes += len(member_id) - len(member.member_id)
        member.member_id = member_id
        self._by_id[member_id] = member

    def update(self, member: ClassicGroupMember, request: JoinRequest) -> None:
        self._count(member, -1)
        member.protocols = distinct(request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        self._count(member, 1)

    def await_join(self, member: ClassicGroupMember, ticket: Ticket) -> None:
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.joining += 1

    def take_join_ticket(self, member: ClassicGroupMember) -> Ticket | None:
        ticket, member.join_ticket = member.join_ticket, None
        self.joining -= ticket is not None
        return ticket

    def support(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """True if every member supports at least one of these protocols."""
        return any(self._supporters.get(name, 0) == len(self) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Select the protocol that most members prefer, among those that all members support. At a tie, the
        preference of the oldest member decides.
        """
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self)}
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    @property
    def topics(self) -> frozenset[str] | None:
        """Topics to which members of type "consumer" subscribe; None if a subscription cannot be read."""
        if not self._topics_are_known:
            subscriptions = {metadata for member in self for _, metadata in member.protocols}
            topics = [subscribed_topics(subscription) for subscription in subscriptions]
            known = [some for some in topics if some is not None]
            self._topics = frozenset().union(*known) if len(known) == len(topics) else None
            self._topics_are_known = True
        return self._topics

    def _count(self, member: ClassicGroupMember, sign: int) -> None:
        self._topics_are_known = False
        self.held_bytes += sign * member.described_bytes
        for name, _ in member.protocols:
            supporters = self._supporters.get(name, 0) + sign
            if supporters:
                self._supporters[name] = supporters
            else:
                del self._supporters[name]


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    try:
        return decode_subscription(subscription).topics
    except BrokerError:
        return None


def distinct(protocols: Protocols) -> Protocols:
    """Drop repeated protocols, keeping the first of each name."""
    by_name: dict[str, bytes] = {}
    for name, metadata in protocols:
        by_name.setdefault(name, metadata)
    return tuple(by_name.items())


def described_bytes(member_id: str, instance_id: str | None, client_id: str, protocols: Protocols) -> int:
    """Memory of a member's description, in bytes."""
    return (
        len(member_id)
        + len(instance_id or "")
        + len(client_id)
        + sum(len(name) + len(metadata) for name, metadata in protocols)
    )
