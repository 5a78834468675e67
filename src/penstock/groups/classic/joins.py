"""JoinGroup to a classic group: which members are admitted, under which member id, and whether a rebalance
follows.

A new member is added, a known one rejoins, and a static member replaces its previous instance (KIP-345).
Created and called by `ClassicGroup`.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import ErrorCode
from penstock.groups.classic.members import ClassicGroupMember, described_bytes, subscribed_topics
from penstock.groups.classic.state_machine import ClassicState
from penstock.groups.consumer_protocol import PROTOCOL_TYPE
from penstock.groups.group import NO_MEMBER, GroupState, GroupStep, JoinRequest, JoinResult, Ticket
from penstock.groups.settings import GroupSettings

_WITH_GENERATION: Final = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class ClassicJoins:
    def __init__(self, state: ClassicState, settings: GroupSettings) -> None:
        self._state = state
        self._members = state.members
        self._settings = settings

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int, step: GroupStep) -> None:
        error = self._check(request)
        if error is not ErrorCode.none:
            step.answers.append((ticket, JoinResult(error, request.member_id)))
        elif request.member_id and not self._members.is_pending(request.member_id):
            self._rejoin(self._members[request.member_id], request, ticket, now_ms, step)
        elif (holder := self._members.instance(request.instance_id)) is not None:
            self._replace(holder, request, ticket, now_ms, step)
        elif request.requires_known_member_id and not request.member_id and request.instance_id is None:
            self._state.add_pending(request.new_member_id, request.session_timeout_ms, now_ms)
            step.answers.append((ticket, JoinResult(ErrorCode.member_id_required, request.new_member_id)))
        else:
            self._admit(request, ticket, now_ms, step)

    def _check(self, request: JoinRequest) -> ErrorCode:
        shortest_ms, longest_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if self._state.current_state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.invalid_session_timeout
        if not self._supports(request):
            return ErrorCode.inconsistent_group_protocol
        if self._members.is_pending(request.member_id):
            # Only dynamic members get member ids in advance.
            is_static = request.instance_id is not None
            return ErrorCode.unknown_member_id if is_static else self._check_bytes(request, None)
        if request.member_id:
            error = self._members.check(request.member_id, request.instance_id)
            known = self._members.get(request.member_id)
            return self._check_bytes(request, known) if error is ErrorCode.none else error
        known = self._members.instance(request.instance_id)
        if known is None and self._members.size >= self._settings.max_size:
            return ErrorCode.group_max_size_reached
        return self._check_bytes(request, known)

    def _supports(self, request: JoinRequest) -> bool:
        if self._state.current_state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self._state.protocol_type and self._members.support(request.protocols)

    def _check_bytes(self, request: JoinRequest, known: ClassicGroupMember | None) -> ErrorCode:
        before = known.described_bytes if known else 0
        after = described_bytes(
            request.member_id or request.new_member_id,
            request.instance_id,
            request.client_id,
            request.protocols,
        )
        held = self._members.held_bytes + after - before
        is_too_much = after > before and held > self._settings.max_metadata_bytes
        return ErrorCode.group_max_size_reached if is_too_much else ErrorCode.none

    def _admit(self, request: JoinRequest, ticket: Ticket, now_ms: int, step: GroupStep) -> None:
        member = ClassicGroupMember.joining(request.member_id or request.new_member_id, request)
        self._state.admit(member, request.protocol_type, ticket, now_ms, step)

    def _rejoin(
        self, member: ClassicGroupMember, request: JoinRequest, ticket: Ticket, now_ms: int, step: GroupStep
    ) -> None:
        state = self._state
        # A leader that rejoins a stable group asks for a new assignment, even with unchanged metadata, for
        # example because partitions were added.
        asks_for_rebalance = state.current_state is GroupState.STABLE and member is state.leader
        if (
            state.current_state in _WITH_GENERATION
            and not asks_for_rebalance
            and member.says(request.protocols)
        ):
            state.prolong(member, now_ms)
            step.answers.append((ticket, state.joined(member)))
            return
        state.update(member, request)
        state.await_join(member, ticket, step)
        state.rebalance(now_ms, step)

    def _replace(
        self, member: ClassicGroupMember, request: JoinRequest, ticket: Ticket, now_ms: int, step: GroupStep
    ) -> None:
        """Give a new member id to a static member that joins without its member id."""
        state = self._state
        former_leader_id = state.leader.member_id if state.leader else NO_MEMBER
        former_metadata = member.metadata(state.protocol_name)
        state.rename(member, request.new_member_id, step)
        state.update(member, request)
        state.prolong(member, now_ms)
        if state.current_state is GroupState.STABLE and self._still_fits(member, former_metadata):
            state.write(state.saved(), step)
            step.answers.append((ticket, self._returned(member, request, former_leader_id)))
            return
        state.await_join(member, ticket, step)
        state.rebalance(now_ms, step)

    def _still_fits(self, member: ClassicGroupMember, former_metadata: bytes) -> bool:
        """True if the assignment of a returning static member is still valid: the same protocol would be
        selected, and the member subscribes to the same topics. Other metadata may differ, because a restarted
        client does not know which partitions it owned.
        """
        if self._members.select_protocol() != self._state.protocol_name:
            return False
        metadata = member.metadata(self._state.protocol_name)
        if metadata == former_metadata or self._state.protocol_type != PROTOCOL_TYPE:
            return True
        former_topics = subscribed_topics(former_metadata)
        return former_topics is None or former_topics == subscribed_topics(metadata)

    def _returned(
        self, member: ClassicGroupMember, request: JoinRequest, former_leader_id: str
    ) -> JoinResult:
        if not request.supports_skipping_assignment:
            # A leader gets its previous member id in the response, so that it takes itself for a follower and
            # keeps the assignment.
            return self._state.joined(member, leader_id=former_leader_id, with_members=False)
        return self._state.joined(member, skip_assignment=member is self._state.leader)
