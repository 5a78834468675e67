"""Group of the consumer protocol (KIP-848), which behaves like that of Apache Kafka.

Members report their state by heartbeats and get their assignment in the response. A change of members,
subscriptions or topics begins a new group epoch, whose target assignment is computed at once. Each member
reconciles with its own heartbeats; partitions are revoked by one member before another one takes them
(`reconciliation`). `ClassicService` serves members of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.cluster.image import ClusterImage
from penstock.config import GroupMigrationPolicy
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.classic_service import ClassicService
from penstock.groups.consumer.heartbeats import check_heartbeat, is_full, said_by, subscription_of
from penstock.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from penstock.groups.consumer.member_timers import MemberTimers
from penstock.groups.consumer.reconciliation import is_within
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.consumer_protocol import PROTOCOL_TYPE, encode_assignment
from penstock.groups.group import (
    NO_MEMBER,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedMember,
    GroupDescription,
    GroupKind,
    GroupState,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
    Ticket,
)
from penstock.groups.heartbeat_group import HeartbeatGroup
from penstock.groups.records import MemberState
from penstock.groups.settings import GroupSettings

_DOWNGRADES = (GroupMigrationPolicy.BIDIRECTIONAL, GroupMigrationPolicy.DOWNGRADE)


class ConsumerGroup(HeartbeatGroup[ConsumerState, MemberTimers]):
    kind: GroupKind = GroupKind.CONSUMER

    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        state, timers = ConsumerState(group_id, settings), MemberTimers(group_id, settings)
        super().__init__(group_id, state, timers, settings, wall_ms)
        self._classic = ClassicService(state, timers, settings)

    # Loading

    def loaded(self, image: ClusterImage, now_ms: int) -> None:
        self.remembered.loaded(image)
        for member in self.remembered.members.values():
            self._deadlines.heard_from(member, now_ms)
            self._deadlines.reconciled(member, None, now_ms)
        self._note_empty()

    # Consumer protocol

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, image: ClusterImage, ticket: Ticket, now_ms: int
    ) -> GroupStep:
        self.remembered.see(image)
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                result = self._leave(request)
            else:
                result = self._beat(request, now_ms)
        except BrokerError as error:
            result = ConsumerHeartbeatResult(error.code, str(error))
        return GroupStep(self.remembered.take_records(), [(ticket, result)])

    def _beat(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        check_heartbeat(request, self._settings)
        remembered = self.remembered
        known = self._known(request)
        value = said_by(request, None if known is None else known.value)
        remembered.check_room(value, known)
        if known is None:
            member = remembered.add(request.member_id, value)
            self._empty_since_ms = None
            changed = True
        else:
            member = (
                known if known.member_id == request.member_id else self._replace(known, request.member_id)
            )
            changed = subscription_of(member.value) != subscription_of(value)
            if member.classic is not None:
                self._deadlines.speaks_new_protocol(member)
            remembered.set_value(member, value)
        remembered.update_target(changed)
        before = member.current
        rejoins = request.member_epoch == JOIN_EPOCH
        remembered.reconcile(member, {} if rejoins else request.owned, rejoins)
        self._deadlines.heard_from(member, now_ms)
        self._deadlines.reconciled(member, before, now_ms)
        sends_assignment = is_full(request) or member.assigned != before.assigned
        return ConsumerHeartbeatResult(
            ErrorCode.none,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms(self.group_id),
            assignment=member.assigned if sends_assignment else None,
        )

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember | None:
        """Return the member that sent the heartbeat, or the static member that it replaces; None for a new
        member. BrokerError if the heartbeat must be refused.
        """
        joins = request.member_epoch == JOIN_EPOCH
        member = self.remembered.members.get(request.member_id)
        if request.instance_id is not None:
            static = self.remembered.static_member(request.instance_id)
            if joins and static is not None and static.member_id != request.member_id:
                if member is not None:
                    message = f"member id {request.member_id} is in use by another member"
                    raise BrokerError(ErrorCode.invalid_request, message)
                if static.classic is None and static.epoch != STATIC_LEAVE_EPOCH:
                    message = f"instance id {request.instance_id} is in use by another member"
                    raise BrokerError(ErrorCode.unreleased_instance_id, message)
                return static
            if not joins:
                member = self._static(request)
        if joins:
            return member
        if member is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"member {request.member_id} is not in the group")
        self._check_epoch(member, request)
        return member

    def _static(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self.remembered.static_member(request.instance_id or "")
        if member is None:
            message = f"instance id {request.instance_id} is not in the group"
            raise BrokerError(ErrorCode.unknown_member_id, message)
        if member.member_id != request.member_id:
            message = f"instance id {request.instance_id} belongs to another member"
            raise BrokerError(ErrorCode.fenced_instance_id, message)
        return member

    def _check_epoch(self, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        """Raise BrokerError if the heartbeat has another member epoch. The previous epoch is accepted if the
        member owns only partitions of its assignment: it has not received the response with the new epoch.
        """
        if request.member_epoch == member.epoch:
            return
        if (
            request.member_epoch == member.current.previous_member_epoch
            and request.member_epoch < member.epoch
            and request.owned is not None
            and is_within(request.owned, member.assigned)
        ):
            return
        message = (
            f"member epoch is {member.epoch}, not {request.member_epoch}: revoke all partitions and rejoin"
        )
        raise BrokerError(ErrorCode.fenced_member_epoch, message)

    def _replace(self, static: ConsumerMember, member_id: str) -> ConsumerMember:
        self._deadlines.forget(static)
        return self.remembered.replace_static(static, member_id)

    def _leave(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        if request.instance_id is not None:
            member = self._static(request)
        else:
            known = self.remembered.members.get(request.member_id)
            if known is None:
                raise BrokerError(
                    ErrorCode.unknown_member_id, f"member {request.member_id} is not in the group"
                )
            member = known
        if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
            self._leave_for_now(member)
        else:
            self._remove([member.member_id])
        return ConsumerHeartbeatResult(
            ErrorCode.none, member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _leave_for_now(self, member: ConsumerMember) -> None:
        left = replace(
            member.current,
            member_epoch=STATIC_LEAVE_EPOCH,
            previous_member_epoch=member.epoch,
            state=MemberState.STABLE,
            pending_revocation={},
        )
        self.remembered.set_current(member, left)
        self._deadlines.left_for_now(member)

    def _forget(self, member_id: str) -> None:
        member = self.remembered.members[member_id]
        self._deadlines.forget(member)
        self.remembered.remove(member)

    # Classic protocol

    @property
    def must_downgrade(self) -> bool:
        """True if only members of the classic protocol are left, and the group may become a classic group."""
        remembered = self.remembered
        return (
            bool(remembered.members)
            and remembered.classic_members == len(remembered.members)
            and self._settings.migration_policy in _DOWNGRADES
        )

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        try:
            result = self._classic.join(request, now_ms)
            self._empty_since_ms = None
        except BrokerError as error:
            result = JoinResult(error.code, request.member_id)
        return GroupStep(self.remembered.take_records(), [(ticket, result)])

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        try:
            result = self._classic.sync(request, now_ms)
        except BrokerError as error:
            result = SyncResult(error.code)
        return GroupStep([], [(ticket, result)])

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        try:
            return self._classic.heartbeat(member_id, instance_id, generation, now_ms)
        except BrokerError as error:
            return error.code

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, now_ms: int) -> GroupStep:
        gone, errors = self._classic.leaving(members)
        if gone:
            self._remove([each.member_id for each in gone])
        return GroupStep(self.remembered.take_records(), [(ticket, LeaveResult(errors))])

    # Views

    @property
    def state(self) -> GroupState:
        remembered = self.remembered
        if not remembered.members:
            return GroupState.EMPTY
        if remembered.assignment_epoch < remembered.epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(remembered.assignment_epoch) for member in remembered.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        if generation < 0 and self.is_empty:
            return
        if is_transactional and generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return
        member = self.remembered.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"member {member_id} is not in the group")
        self._check_generation(member, generation)
        if member.classic is not None:
            self._deadlines.heard_from(member, now_ms)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self.remembered.members.get(member_id or NO_MEMBER)
        if member is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"member {member_id} is not in the group")
        self._check_generation(member, member_epoch)

    def _check_generation(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            code = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
            raise BrokerError(code, f"member epoch is {member.epoch}, not {epoch}")

    @property
    def topics(self) -> frozenset[str]:
        return self.remembered.topics

    def describe(self) -> GroupDescription:
        remembered = self.remembered
        return GroupDescription(
            self.group_id,
            self.kind,
            self.state,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=remembered.assignor.value,
            members=tuple(self._described(member) for member in remembered.members.values()),
            epoch=remembered.epoch,
            assignment_epoch=remembered.assignment_epoch,
        )

    def _described(self, member: ConsumerMember) -> DescribedMember:
        value = member.value
        classic = member.classic
        return DescribedMember(
            member.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            metadata=b"" if classic is None else classic.protocols[0][1],
            assignment=encode_assignment(self.remembered.by_name(member.assigned), 0),
            rack_id=value.rack_id,
            member_epoch=member.epoch,
            subscribed_topics=tuple(sorted(value.subscribed_topics)),
            subscribed_regex=value.subscribed_regex,
            current=member.assigned,
            target=self.remembered.targets.get(member.member_id, {}),
            is_classic=classic is not None,
        )
