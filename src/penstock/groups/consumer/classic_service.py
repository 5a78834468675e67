"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of a consumer group that use the classic
protocol.

No request waits for other members: a join gets the member epoch as its generation at once, and a sync gets
the current assignment. A heartbeat tells the member to rejoin if it has partitions to revoke or can take new
ones. The owned partitions in its subscription then confirm the revocation, as in a ConsumerGroupHeartbeat.
Used by `ConsumerGroup` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.member_timers import MemberTimers
from penstock.groups.consumer.reconciliation import minus
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
)
from penstock.groups.group import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from penstock.groups.records import Assignment, ClassicProtocols, ConsumerMemberValue, MemberState
from penstock.groups.settings import GroupSettings


class ClassicService:
    def __init__(self, state: ConsumerState, timers: MemberTimers, settings: GroupSettings) -> None:
        self._state = state
        self._timers = timers
        self._settings = settings

    def join(self, request: JoinRequest, now_ms: int) -> JoinResult:
        subscription = self._check_join(request)
        if not request.member_id and request.instance_id is None and request.requires_known_member_id:
            return JoinResult(ErrorCode.member_id_required, request.new_member_id)
        value = _value(request, subscription)
        known = self._known(request)
        if known is None and subscription.owned:
            # A new member owns nothing: if it was a member before, it was removed, and other members may own
            # its partitions.
            raise BrokerError(ErrorCode.unknown_member_id)
        self._state.check_room(value, known)
        if known is None:
            member = self._state.add(request.member_id or request.new_member_id, value)
            self._state.update_target(changed=True)
        else:
            member = known if request.member_id else self._returned(known, request.new_member_id)
            changed = member.value.subscribed_topics != value.subscribed_topics
            changed |= bool(member.value.subscribed_regex)
            self._state.set_value(member, value)
            self._state.update_target(changed)
        current = member.current
        self._state.reconcile(member, self._owned(subscription.owned))
        self._timers.heard_from(member, now_ms)
        self._timers.reconciled(member, current, now_ms)
        self._timers.joined(member, now_ms)
        return JoinResult(
            ErrorCode.none,
            member.member_id,
            generation=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
        )

    def sync(self, request: SyncRequest, now_ms: int) -> SyncResult:
        member, classic = self._joined(request.member_id, request.instance_id, request.generation)
        protocol_name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol_name,
        ):
            raise BrokerError(ErrorCode.inconsistent_group_protocol)
        self._timers.heard_from(member, now_ms)
        if self._is_behind(member):
            self._timers.told_to_join(member, now_ms)
            raise BrokerError(ErrorCode.rebalance_in_progress)
        self._timers.synced(member)
        version = decode_subscription(metadata).version
        assignment = encode_assignment(self._state.by_name(member.assigned), version)
        return SyncResult(ErrorCode.none, PROTOCOL_TYPE, protocol_name, assignment)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        member, _ = self._joined(member_id, instance_id, generation)
        self._timers.heard_from(member, now_ms)
        if not self._must_rejoin(member):
            return ErrorCode.none
        self._timers.told_to_join(member, now_ms)
        return ErrorCode.rebalance_in_progress

    def leaving(self, members: Sequence[LeavingMember]) -> tuple[list[ConsumerMember], tuple[ErrorCode, ...]]:
        """Return the members that leave, and the error of each requested member, in order. If a member is
        named twice, the second request gets UNKNOWN_MEMBER_ID.
        """
        gone: dict[str, ConsumerMember] = {}
        errors = []
        for leaving in members:
            try:
                member = self._leaving(leaving)
                if member.member_id in gone:
                    raise BrokerError(ErrorCode.unknown_member_id)
                gone[member.member_id] = member
                errors.append(ErrorCode.none)
            except BrokerError as error:
                errors.append(error.code)
        return list(gone.values()), tuple(errors)

    def _check_join(self, request: JoinRequest) -> Subscription:
        settings = self._settings
        if (
            not settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            raise BrokerError(ErrorCode.invalid_session_timeout)
        if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
            raise BrokerError(ErrorCode.inconsistent_group_protocol)
        shared = {name for name, _ in request.protocols}
        for member in self._state.members.values():
            if member.classic is not None and member.member_id != request.member_id:
                shared.intersection_update(name for name, _ in member.classic.protocols)
        if not shared:
            message = "no assignor is supported by all members of the classic protocol"
            raise BrokerError(ErrorCode.inconsistent_group_protocol, message)
        return decode_subscription(request.protocols[0][1])

    def _known(self, request: JoinRequest) -> ConsumerMember | None:
        """Return the known member that joins; None for a new member. A static member is also found by its
        instance id alone.
        """
        static = None if request.instance_id is None else self._state.static_member(request.instance_id)
        if static is None:
            return self._state.members.get(request.member_id)
        if request.member_id not in ("", static.member_id):
            raise BrokerError(ErrorCode.fenced_instance_id)
        return static

    def _returned(self, static: ConsumerMember, member_id: str) -> ConsumerMember:
        self._timers.forget(static)
        return self._state.replace_static(static, member_id)

    def _joined(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicProtocols]:
        if instance_id is not None:
            static = self._state.static_member(instance_id)
            if static is None:
                raise BrokerError(ErrorCode.unknown_member_id)
            if static.member_id != member_id:
                raise BrokerError(ErrorCode.fenced_instance_id)
        member = self._state.members.get(member_id)
        if member is None or member.classic is None:
            raise BrokerError(ErrorCode.unknown_member_id)
        if generation != member.epoch:
            raise BrokerError(ErrorCode.illegal_generation)
        return member, member.classic

    def _leaving(self, leaving: LeavingMember) -> ConsumerMember:
        member = (
            self._state.members.get(leaving.member_id)
            if leaving.instance_id is None
            else self._state.static_member(leaving.instance_id)
        )
        if member is None or member.classic is None:
            raise BrokerError(ErrorCode.unknown_member_id)
        if leaving.member_id and leaving.member_id != member.member_id:
            raise BrokerError(ErrorCode.fenced_instance_id)
        return member

    def _is_behind(self, member: ConsumerMember) -> bool:
        """True if a new epoch has begun and the member has no partitions to revoke first."""
        return (
            member.epoch < self._state.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS
        )

    def _must_rejoin(self, member: ConsumerMember) -> bool:
        if member.epoch < self._state.epoch:
            return True
        if member.current.state is MemberState.STABLE:
            return False
        return member.current.state is MemberState.UNREVOKED_PARTITIONS or self._all_is_free(member)

    def _all_is_free(self, member: ConsumerMember) -> bool:
        """True if all partitions that the member waits for are free, so that one more join gets all of them."""
        missing = minus(self._state.targets.get(member.member_id, {}), member.assigned)
        return all(
            self._state.is_free(topic, number) for topic, numbers in missing.items() for number in numbers
        )

    def _owned(self, partitions: TopicPartitions) -> Assignment:
        topics = self._state.image.topics
        return {topics[name].id: numbers for name, numbers in partitions.items() if name in topics}


def _value(request: JoinRequest, subscription: Subscription) -> ConsumerMemberValue:
    return ConsumerMemberValue(
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topics=subscription.topics,
        subscribed_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
