"""A classic group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), which behaves like that of Apache Kafka.

This module checks requests; `ClassicJoins` admits members, and `ClassicState` owns the state and moves it
from one generation to the next. No request iterates over all members, unless all get a response or a phase
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.cluster.image import ClusterImage
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.joins import ClassicJoins
from penstock.groups.classic.members import Protocols
from penstock.groups.classic.state_machine import ClassicState
from penstock.groups.consumer_protocol import PROTOCOL_TYPE
from penstock.groups.group import (
    NO_MEMBER,
    DescribedMember,
    GroupDescription,
    GroupKind,
    GroupState,
    GroupStep,
    JoinRequest,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
    Ticket,
)
from penstock.groups.records import ClassicGroupKey, ClassicGroupValue, GroupRecord
from penstock.groups.settings import GroupSettings


class ClassicGroup:
    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        self.kind = GroupKind.CLASSIC
        self.group_id = group_id
        self._state = ClassicState(group_id, settings, wall_ms)
        self._members = self._state.members
        self._joins = ClassicJoins(self._state, settings)

    def apply(self, record: GroupRecord) -> None:
        assert isinstance(record.value, ClassicGroupValue)
        self._state.apply(record.value)

    def loaded(self, image: ClusterImage, now_ms: int) -> None:
        self._state.loaded(now_ms)

    def saved(self) -> ClassicGroupValue:
        return self._state.saved()

    @property
    def state(self) -> GroupState:
        return self._state.current_state

    @property
    def generation(self) -> int:
        return self._state.generation

    @property
    def is_empty(self) -> bool:
        return self.state in (GroupState.EMPTY, GroupState.DEAD)

    @property
    def is_blank(self) -> bool:
        return self.generation == 0 and self.state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def empty_since_ms(self) -> int | None:
        """Wall-clock time in milliseconds at which the last member left; None if the group has members or
        never had any.
        """
        had_members = self._state.protocol_type is not None
        is_emptied = had_members and self.state is GroupState.EMPTY
        return self._state.state_timestamp_ms if is_emptied else None

    @property
    def next_deadline_ms(self) -> int | None:
        return self._state.next_deadline_ms

    def protocols_of(self, member_id: str) -> Protocols:
        return self._members[member_id].protocols

    # Members

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        step = GroupStep()
        self._joins.join(request, ticket, now_ms, step)
        return step

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        step = GroupStep()
        error = self._check_sync(request)
        if error is not ErrorCode.none:
            step.answers.append((ticket, SyncResult(error)))
            return step
        member = self._members[request.member_id]
        self._state.sync(member, request.assignments, ticket, now_ms, step)
        return step

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        state = self._state
        error = self._check(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.none:
            return error
        if request.protocol_type not in (None, state.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if request.protocol_name not in (None, state.protocol_name):
            return ErrorCode.inconsistent_group_protocol
        is_joining = state.current_state is GroupState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if is_joining else ErrorCode.none

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        error = self._check(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        self._state.prolong(self._members[member_id], now_ms)
        is_joining = self._state.current_state is GroupState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if is_joining else ErrorCode.none

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Check that the member exists and that `generation` is the current generation."""
        if self._state.current_state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._members.check(member_id, instance_id)
        if error is ErrorCode.none and generation != self._state.generation:
            return ErrorCode.illegal_generation
        return error

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, now_ms: int) -> GroupStep:
        step = GroupStep()
        before = len(self._members)
        errors = tuple(self._let_go(leaving, step) for leaving in members)
        self._state.after_removal(before, now_ms, step)
        step.answers.append((ticket, LeaveResult(errors)))
        return step

    def _let_go(self, leaving: LeavingMember, step: GroupStep) -> ErrorCode:
        if self._state.current_state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if self._members.is_pending(leaving.member_id):
            self._state.discard_pending(leaving.member_id)
            return ErrorCode.none
        member_id = leaving.member_id
        if member_id == NO_MEMBER:  # An administrator names the instance id only.
            holder = self._members.instance(leaving.instance_id)
            member_id = holder.member_id if holder else NO_MEMBER
        error = self._members.check(member_id, leaving.instance_id)
        if error is ErrorCode.none:
            self._state.expel(self._members[member_id], step)
        return error

    def tick(self, now_ms: int) -> GroupStep:
        step = GroupStep()
        self._state.tick(now_ms, step)
        return step

    def prepare_rebalance(self, now_ms: int) -> GroupStep:
        step = GroupStep()
        if not self.is_empty:
            self._state.rebalance(now_ms, step)
        return step

    # Offsets

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        error = self._check_commit(member_id, instance_id, generation, is_transactional)
        if error is not ErrorCode.none:
            raise BrokerError(error)
        if member_id in self._members:
            self._state.prolong(self._members[member_id], now_ms)

    def _check_commit(
        self, member_id: str, instance_id: str | None, generation: int, is_transactional: bool
    ) -> ErrorCode:
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if is_transactional and generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return ErrorCode.none
        error = self._check(member_id, instance_id, generation)
        is_between = self.state is GroupState.COMPLETING_REBALANCE and not is_transactional
        return ErrorCode.rebalance_in_progress if error is ErrorCode.none and is_between else error

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self._state.current_state is GroupState.DEAD:
            raise BrokerError(ErrorCode.group_id_not_found)

    @property
    def topics(self) -> frozenset[str]:
        return self._known_topics or frozenset()

    def reads(self, topic: str) -> bool:
        if not self._members:
            return False
        topics = self._known_topics
        return topics is None or topic in topics

    @property
    def _known_topics(self) -> frozenset[str] | None:
        """Topics to which the members subscribe; None if a subscription cannot be read."""
        return self._members.topics if self._state.protocol_type == PROTOCOL_TYPE else None

    # Views

    def describe(self) -> GroupDescription:
        """Describe the group. Metadata and assignments are included only if the group is Stable."""
        is_stable = self._state.current_state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            state=self._state.current_state,
            protocol_type=self._state.protocol_type or "",
            protocol_name=(self._state.protocol_name or "") if is_stable else "",
            members=tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self._state.protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self._members
            ),
        )

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(ClassicGroupKey(self.group_id), None)]

    def give_up(self, error: ErrorCode) -> GroupStep:
        step = GroupStep()
        self._state.give_up(error, step)
        return step
