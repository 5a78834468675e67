"""The state of a classic group and its transitions from one generation to the next; no other module changes
it.

The states Stable and Empty are recorded: a group enters them when a record is applied, live and in a replay.
The phases of a rebalance between them, waiting requests and deadlines are in memory only (decision 0032). In
PreparingRebalance the members (re)join. In CompletingRebalance their leader assigns partitions. Then the
group is Stable. Joins wait only in the first phase, syncs only in the second; each phase has a deadline, and
every ticket gets exactly one response. `ClassicGroup` and `ClassicJoins` check requests and call this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from penstock.errors import ErrorCode
from penstock.groups.classic.members import ClassicGroupMember, ClassicMembers
from penstock.groups.deadlines import Deadlines
from penstock.groups.group import (
    NO_MEMBER,
    GroupState,
    GroupStep,
    JoinRequest,
    JoinResult,
    SyncResult,
    Ticket,
)
from penstock.groups.records import ClassicGroupKey, ClassicGroupValue, GroupRecord
from penstock.groups.settings import GroupSettings

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Maximum time in milliseconds that a new member may wait for its first generation. Its client cannot send
heartbeats yet, so the broker cannot tell whether it is still there.
"""


class ClassicState:
    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        self._group_id = group_id
        self._settings = settings
        self._wall_ms = wall_ms
        self.current_state = GroupState.EMPTY
        self.state_timestamp_ms = wall_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: ClassicGroupMember | None = None
        self.members = ClassicMembers()
        self._sessions = Deadlines()
        self._join_deadline_ms: int | None = None
        self._initial_end_ms: int | None = None
        """End of the initial rebalance delay of an empty group, in monotonic milliseconds: the first
        rebalance waits until then for more members. None if no such wait is in progress.
        """
        self._has_newcomer = False
        self._awaited_syncs: set[str] = set()
        self._sync_deadline_ms: int | None = None

    def apply(self, value: ClassicGroupValue) -> None:
        """Set the state from a record: a stable group with the members of the record, or an empty group."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.state_timestamp_ms = value.state_timestamp_ms
        is_stable = bool(value.members) and value.protocol_name is not None
        self.current_state = GroupState.STABLE if is_stable else GroupState.EMPTY
        self.protocol_name = value.protocol_name if is_stable else None
        self.members.apply(value.members if is_stable else (), value.protocol_name or "")
        self.leader = self.members.get(value.leader) or next(iter(self.members), None)

    def loaded(self, now_ms: int) -> None:
        for member in self.members:
            self.prolong(member, now_ms)

    def saved(self) -> ClassicGroupValue:
        return self._value({member.member_id: member.assignment for member in self.members})

    def _value(self, assignments: Mapping[str, bytes]) -> ClassicGroupValue:
        """Value of a record with these assignments by member id."""
        return ClassicGroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader.member_id if self.leader else None,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                member.saved(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members
            ),
        )

    def write(self, value: ClassicGroupValue, step: GroupStep) -> None:
        """Apply a decision and add its record to the step. Only records lead to the states Stable and Empty."""
        self.apply(value)
        step.records.append(GroupRecord(ClassicGroupKey(self._group_id), value))

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (self._sessions.next_ms, self._join_deadline_ms, self._sync_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: int, step: GroupStep) -> None:
        while (member_id := self._sessions.pop(now_ms)) is not None:
            self._on_session_end(member_id, now_ms, step)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._on_join_deadline(now_ms, step)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._on_sync_deadline(now_ms, step)

    def give_up(self, error: ErrorCode, step: GroupStep) -> None:
        for member in self.members:
            self._answer_join(member, JoinResult(error, member.member_id), step)
            self._answer_sync(member, SyncResult(error), step)
        self._enter(GroupState.DEAD)
        self._sessions = Deadlines()
        self._join_deadline_ms = self._sync_deadline_ms = None

    # Members

    def add_pending(self, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        """Expect a JoinGroup request with this member id, which a new member got (KIP-394), until its session
        expires.
        """
        self.members.add_pending(member_id)
        self._sessions.set(member_id, now_ms + session_timeout_ms)

    def discard_pending(self, member_id: str) -> None:
        self.members.discard_pending(member_id)
        self._sessions.discard(member_id)

    def admit(
        self, member: ClassicGroupMember, protocol_type: str, ticket: Ticket, now_ms: int, step: GroupStep
    ) -> None:
        """Add a new member and begin a rebalance."""
        self.members.discard_pending(member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
        self.members.add(member)
        self.members.await_join(member, ticket)
        self._sessions.set(member.member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._has_newcomer = True
        self.rebalance(now_ms, step)

    def update(self, member: ClassicGroupMember, request: JoinRequest) -> None:
        self.members.update(member, request)

    def await_join(self, member: ClassicGroupMember, ticket: Ticket, step: GroupStep) -> None:
        # A repeated request means that the client has given up waiting for the first one.
        self._answer_join(member, JoinResult(ErrorCode.rebalance_in_progress, member.member_id), step)
        self.members.await_join(member, ticket)

    def rename(self, member: ClassicGroupMember, member_id: str, step: GroupStep) -> None:
        """Change the member id of a static member. Waiting requests with the previous id are answered as fenced."""
        self._answer_join(member, JoinResult(ErrorCode.fenced_instance_id, member.member_id), step)
        self._answer_sync(member, SyncResult(ErrorCode.fenced_instance_id), step)
        self._sessions.discard(member.member_id)
        if member.member_id in self._awaited_syncs:
            self._awaited_syncs.remove(member.member_id)
            self._awaited_syncs.add(member_id)
        self.members.rename(member, member_id)
        member.is_new = False

    def prolong(self, member: ClassicGroupMember, now_ms: int) -> None:
        if member.join_ticket is None:
            self._sessions.set(member.member_id, now_ms + member.session_timeout_ms)

    def expel(self, member: ClassicGroupMember, step: GroupStep) -> None:
        self._answer_join(member, JoinResult(ErrorCode.unknown_member_id, NO_MEMBER), step)
        self._answer_sync(member, SyncResult(ErrorCode.unknown_member_id), step)
        self._forget(member)

    def after_removal(self, members_before: int, now_ms: int, step: GroupStep) -> None:
        """Continue or begin a rebalance after members or pending member ids were removed. Removed pending ids
        alone matter only to a rebalance that waited for them.
        """
        if len(self.members) < members_before or self.current_state is GroupState.PREPARING_REBALANCE:
            self.rebalance(now_ms, step)

    def _on_session_end(self, member_id: str, now_ms: int, step: GroupStep) -> None:
        before = len(self.members)
        if self.members.is_pending(member_id):
            self.members.discard_pending(member_id)
        else:
            member = self.members[member_id]
            if member.is_waiting and not member.is_new:
                return  # The member waits for a response; its session continues when the response is sent.
            self.expel(member, step)
        self.after_removal(before, now_ms, step)

    def _forget(self, member: ClassicGroupMember) -> None:
        self.members.remove(member)
        self._sessions.discard(member.member_id)
        self._awaited_syncs.discard(member.member_id)
        if member is self.leader:
            self.leader = None

    # The first phase: joins

    def rebalance(self, now_ms: int, step: GroupStep) -> None:
        """Begin a rebalance after a change of members, or complete one that waited for this change."""
        if self.current_state is GroupState.PREPARING_REBALANCE:
            if self.members.have_all_joined and (self._initial_end_ms is None or not self.members):
                self._complete_join(now_ms, step)
            return
        if self.current_state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.rebalance_in_progress, now_ms, step)
        self._awaited_syncs.clear()
        self._sync_deadline_ms = None
        is_initial = self.current_state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if is_initial and delay_ms > 0:
            self._has_newcomer = False
            self._join_deadline_ms = now_ms + delay_ms
            self._initial_end_ms = now_ms + self.members.rebalance_timeout_ms
        elif is_initial or self.members.have_all_joined:
            self._complete_join(now_ms, step)
        else:
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max(self.members.rebalance_timeout_ms, 1)  # A client may send 0 or less.

    def _on_join_deadline(self, now_ms: int, step: GroupStep) -> None:
        if self._initial_end_ms is not None and self._has_newcomer and now_ms < self._initial_end_ms:
            self._has_newcomer = False
            delay_ms = max(self._settings.initial_rebalance_delay_ms, 1)
            self._join_deadline_ms = min(now_ms + delay_ms, self._initial_end_ms)
        else:
            self._complete_join(now_ms, step)

    def _complete_join(self, now_ms: int, step: GroupStep) -> None:
        self._join_deadline_ms = self._initial_end_ms = None
        self._remove_absent()
        if not self.members:
            self._become_empty(step)
            return
        leader = self._elect()
        if leader is None:  # Only static members are left, and none of them has rejoined.
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms
            return
        self.leader = leader
        self.generation += 1
        self.protocol_name = self.members.select_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms
        for member in self.members:
            self._awaited_syncs.add(member.member_id)
            self._answer_join(member, self.joined(member), step)
            self.prolong(member, now_ms)
            member.is_new = False

    def _remove_absent(self) -> None:
        """Remove dynamic members that did not rejoin; static members stay until their session expires."""
        if self.members.joining < len(self.members):
            for member in list(self.members):
                if member.join_ticket is None and member.instance_id is None:
                    self._forget(member)

    def _elect(self) -> ClassicGroupMember | None:
        if self.leader is not None and self.leader.join_ticket is not None:
            return self.leader
        return next((member for member in self.members if member.join_ticket is not None), None)

    def _become_empty(self, step: GroupStep) -> None:
        value = replace(
            self.saved(),
            generation=self.generation + 1,
            protocol_name=None,
            state_timestamp_ms=self._wall_ms(),
        )
        self.write(value, step)

    def joined(
        self,
        member: ClassicGroupMember,
        *,
        leader_id: str | None = None,
        with_members: bool = True,
        skip_assignment: bool = False,
    ) -> JoinResult:
        assert self.leader is not None
        return JoinResult(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader.member_id if leader_id is None else leader_id,
            skip_assignment,
            self._roll_call() if with_members and member is self.leader else (),
        )

    def _roll_call(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members
        )

    # The second phase: syncs

    def sync(
        self,
        member: ClassicGroupMember,
        assignments: Mapping[str, bytes],
        ticket: Ticket,
        now_ms: int,
        step: GroupStep,
    ) -> None:
        self.prolong(member, now_ms)
        self._awaited_syncs.discard(member.member_id)
        if not self._awaited_syncs:
            self._sync_deadline_ms = None
        if self.current_state is GroupState.STABLE:
            step.answers.append((ticket, self._synced(member)))
            return
        # A repeated request means that the client has given up waiting for the first one.
        self._answer_sync(member, SyncResult(ErrorCode.rebalance_in_progress), step)
        member.sync_ticket = ticket
        if member is self.leader:
            self._decide(assignments, now_ms, step)

    def _decide(self, assignments: Mapping[str, bytes], now_ms: int, step: GroupStep) -> None:
        """Take over the leader's assignment. Assignments to unknown members are ignored."""
        value = replace(self._value(assignments), state_timestamp_ms=self._wall_ms())
        if sum(len(member.assignment) for member in value.members) > self._settings.max_metadata_bytes:
            self._refuse_syncs(ErrorCode.unknown_server_error, now_ms, step)
            self.rebalance(now_ms, step)
            return
        self.write(value, step)
        for member in self.members:
            if member.sync_ticket is not None:
                self._answer_sync(member, self._synced(member), step)
                self.prolong(member, now_ms)

    def _synced(self, member: ClassicGroupMember) -> SyncResult:
        return SyncResult(ErrorCode.none, self.protocol_type, self.protocol_name, member.assignment)

    def _refuse_syncs(self, error: ErrorCode, now_ms: int, step: GroupStep) -> None:
        for member in self.members:
            member.assignment = b""
            if member.sync_ticket is not None:
                self._answer_sync(member, SyncResult(error), step)
                self.prolong(member, now_ms)

    def _on_sync_deadline(self, now_ms: int, step: GroupStep) -> None:
        """Remove members that joined but did not sync before the deadline."""
        self._sync_deadline_ms = None
        for member_id in list(self._awaited_syncs):
            self._forget(self.members[member_id])
        self.rebalance(now_ms, step)

    # Helpers

    def _enter(self, state: GroupState) -> None:
        self.current_state = state
        self.state_timestamp_ms = self._wall_ms()

    def _answer_join(self, member: ClassicGroupMember, result: JoinResult, step: GroupStep) -> None:
        ticket = self.members.take_join_ticket(member)
        if ticket is not None:
            step.answers.append((ticket, result))

    def _answer_sync(self, member: ClassicGroupMember, result: SyncResult, step: GroupStep) -> None:
        if member.sync_ticket is not None:
            step.answers.append((member.sync_ticket, result))
            member.sync_ticket = None
