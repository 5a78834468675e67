"""The classic group protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), as Apache Kafka's coordinator behaves.

A generation is made in two phases: while PreparingRebalance the members (re)join, while CompletingRebalance their
leader decides who gets what; then the group is Stable. Joins wait only in the first phase, syncs in the second, and
every ticket is answered exactly once. No request looks at every member unless all are answered or a phase begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic_deadlines import Deadlines
from penstock.groups.classic_members import (
    ClassicMembers,
    Member,
    Protocols,
    described_bytes,
    subscribed_topics,
)
from penstock.groups.consumer_protocol import PROTOCOL_TYPE
from penstock.groups.group import (
    NO_MEMBER,
    DescribedMember,
    GroupDescription,
    GroupKind,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Step,
    SyncRequest,
    SyncResult,
    Ticket,
)
from penstock.groups.records import ClassicGroupKey, ClassicGroupValue, GroupRecord
from penstock.groups.settings import GroupSettings

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member waits no longer than this for its first generation: its client may be gone and cannot heartbeat yet."""

_ASSIGNED_STATES: Final = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class ClassicGroup:
    kind: GroupKind = GroupKind.CLASSIC

    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self._settings = settings
        self._wall_ms = wall_ms
        self._state = GroupState.EMPTY
        self._state_timestamp_ms = wall_ms()
        self._generation = 0
        self._protocol_type: str | None = None
        self._protocol_name: str | None = None
        self._leader: Member | None = None
        self._members = ClassicMembers()
        self._sessions = Deadlines()
        self._join_deadline_ms: int | None = None
        self._initial_end_ms: int | None = None
        """While the first rebalance of an empty group waits for more members: when it waits no longer."""
        self._has_newcomer = False
        self._awaited_syncs: set[str] = set()
        self._sync_deadline_ms: int | None = None

    @classmethod
    def restore(
        cls,
        group_id: str,
        value: ClassicGroupValue,
        settings: GroupSettings,
        wall_ms: Callable[[], int],
        now_ms: int,
    ) -> ClassicGroup:
        """The group as its last record left it: stable, whoever was about to rebalance, or empty."""
        group = cls(group_id, settings, wall_ms)
        group._generation = value.generation
        group._protocol_type = value.protocol_type or None
        group._state_timestamp_ms = value.state_timestamp_ms
        if value.members and value.protocol_name is not None:
            group._state = GroupState.STABLE
            group._protocol_name = value.protocol_name
            for saved in value.members:
                member = Member.restored(saved, value.protocol_name)
                group._members.add(member)
                group._prolong(member, now_ms)
            group._leader = group._members.get(value.leader)
        return group

    @property
    def state(self) -> GroupState:
        return self._state

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_empty(self) -> bool:
        return self._state in (GroupState.EMPTY, GroupState.DEAD)

    @property
    def empty_since_ms(self) -> int | None:
        """Wall clock."""
        had_members = self._protocol_type is not None
        return self._state_timestamp_ms if had_members and self._state is GroupState.EMPTY else None

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (self._sessions.next_ms, self._join_deadline_ms, self._sync_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def saved(self) -> ClassicGroupValue:
        return ClassicGroupValue(
            protocol_type=self._protocol_type or "",
            generation=self._generation,
            protocol_name=self._protocol_name,
            leader=self._leader.member_id if self._leader else None,
            state_timestamp_ms=self._state_timestamp_ms,
            members=tuple(member.saved(self._protocol_name) for member in self._members),
        )

    def protocols_of(self, member_id: str) -> Protocols:
        return self._members[member_id].protocols

    # JoinGroup

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> Step:
        step = Step()
        error = self._check_join(request)
        if error is not ErrorCode.none:
            step.answers.append((ticket, JoinResult(error, request.member_id)))
        elif request.member_id and not self._members.is_pending(request.member_id):
            self._rejoin(self._members[request.member_id], request, ticket, now_ms, step)
        elif (holder := self._members.instance(request.instance_id)) is not None:
            self._replace(holder, request, ticket, now_ms, step)
        elif request.requires_known_member_id and not request.member_id and request.instance_id is None:
            self._members.add_pending(request.new_member_id)
            self._sessions.set(request.new_member_id, now_ms + request.session_timeout_ms)
            step.answers.append((ticket, JoinResult(ErrorCode.member_id_required, request.new_member_id)))
        else:
            self._admit(request, ticket, now_ms, step)
        return step

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        settings = self._settings
        if self._state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if (
            not settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            return ErrorCode.invalid_session_timeout
        if not self._supports(request):
            return ErrorCode.inconsistent_group_protocol
        if not request.member_id:
            return self._check_room(request, self._members.instance(request.instance_id))
        if not self._members.is_pending(request.member_id):
            error = self._members.check(request.member_id, request.instance_id)
            return (
                error
                if error is not ErrorCode.none
                else self._check_room(request, self._members[request.member_id])
            )
        if request.instance_id is not None:  # an id that was given out belongs to a dynamic member
            return ErrorCode.unknown_member_id
        return self._check_bytes(request, 0)

    def _supports(self, request: JoinRequest) -> bool:
        if self._state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self._protocol_type and self._members.support(request.protocols)

    def _check_room(self, request: JoinRequest, known: Member | None) -> ErrorCode:
        """Who is a member may come back; others only while there is room."""
        if known is None and self._members.size >= self._settings.max_size:
            return ErrorCode.group_max_size_reached
        return self._check_bytes(request, known.described_bytes if known else 0)

    def _check_bytes(self, request: JoinRequest, before: int) -> ErrorCode:
        after = described_bytes(
            request.member_id or request.new_member_id,
            request.instance_id,
            request.client_id,
            request.protocols,
        )
        if after > before and self._members.held_bytes + after - before > self._settings.max_metadata_bytes:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    def _admit(self, request: JoinRequest, ticket: Ticket, now_ms: int, step: Step) -> None:
        member = Member.joining(request.member_id or request.new_member_id, request)
        self._members.discard_pending(member.member_id)
        if not self._members:
            self._protocol_type = request.protocol_type
        self._members.add(member)
        self._members.await_join(member, ticket)
        self._sessions.set(member.member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._has_newcomer = True
        self._rebalance(now_ms, step)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: int, step: Step) -> None:
        # A leader that rejoins a stable group wants another assignment, whatever it says of itself: partitions came.
        asks_for_rebalance = self._state is GroupState.STABLE and member is self._leader
        if self._state in _ASSIGNED_STATES and not asks_for_rebalance and member.says(request.protocols):
            self._prolong(member, now_ms)
            step.answers.append((ticket, self._joined(member)))
            return
        self._members.update(member, request)
        self._await_join(member, ticket, step)
        self._rebalance(now_ms, step)

    def _replace(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: int, step: Step) -> None:
        """A static member came back without its id (KIP-345): it gets a new one, and whoever used the old is fenced."""
        former_leader_id = self._leader.member_id if self._leader else NO_MEMBER
        former_metadata = member.metadata(self._protocol_name)
        self._answer_join(member, JoinResult(ErrorCode.fenced_instance_id, member.member_id), step)
        self._answer_sync(member, SyncResult(ErrorCode.fenced_instance_id), step)
        self._sessions.discard(member.member_id)
        awaits_sync = member.member_id in self._awaited_syncs
        self._awaited_syncs.discard(member.member_id)
        member.is_new = False
        self._members.rename(member, request.new_member_id)
        self._members.update(member, request)
        if awaits_sync:
            self._awaited_syncs.add(member.member_id)
        self._prolong(member, now_ms)
        if self._state is GroupState.STABLE and self._still_fits(member, former_metadata):
            step.records.append(self._record())
            step.answers.append((ticket, self._returned(member, request, former_leader_id)))
            return
        self._await_join(member, ticket, step)
        self._rebalance(now_ms, step)

    def _still_fits(self, member: Member, former_metadata: bytes) -> bool:
        """Whether the assignment holds for a static member that came back: the same protocol would be chosen, and it
        wants the same topics. Other metadata may differ; a restart forgets what was owned."""
        if self._members.select_protocol() != self._protocol_name:
            return False
        metadata = member.metadata(self._protocol_name)
        if metadata == former_metadata or self._protocol_type != PROTOCOL_TYPE:
            return True
        former_topics = subscribed_topics(former_metadata)
        return former_topics is None or former_topics == subscribed_topics(metadata)

    def _returned(self, member: Member, request: JoinRequest, former_leader_id: str) -> JoinResult:
        if not request.supports_skipping_assignment:
            # A leader is told the id it had: it takes itself for a follower and keeps the assignment.
            return self._joined(member, leader_id=former_leader_id, with_members=False)
        return self._joined(member, skip_assignment=member is self._leader)

    def _joined(
        self,
        member: Member,
        *,
        leader_id: str | None = None,
        with_members: bool = True,
        skip_assignment: bool = False,
    ) -> JoinResult:
        assert self._leader is not None
        return JoinResult(
            ErrorCode.none,
            member.member_id,
            self._generation,
            self._protocol_type,
            self._protocol_name,
            self._leader.member_id if leader_id is None else leader_id,
            skip_assignment,
            self._roll_call() if with_members and member is self._leader else (),
        )

    def _roll_call(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self._protocol_name))
            for member in self._members
        )

    # Rebalances

    def prepare_rebalance(self, now_ms: int) -> Step:
        step = Step()
        if self._state in _ASSIGNED_STATES:
            self._rebalance(now_ms, step)
        return step

    def _rebalance(self, now_ms: int, step: Step) -> None:
        """Members came, went or changed: a rebalance begins, or one that waits may have waited for just that."""
        if self._state is GroupState.PREPARING_REBALANCE:
            if self._members.have_all_joined and (self._initial_end_ms is None or not self._members):
                self._complete_join(now_ms, step)
            return
        if self._state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.rebalance_in_progress, now_ms, step)
        self._awaited_syncs.clear()
        self._sync_deadline_ms = None
        is_initial = self._state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if is_initial and delay_ms > 0:
            self._has_newcomer = False
            self._join_deadline_ms = now_ms + delay_ms
            self._initial_end_ms = now_ms + self._members.rebalance_timeout_ms
        elif is_initial or self._members.have_all_joined:
            self._complete_join(now_ms, step)
        else:
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max(self._members.rebalance_timeout_ms, 1)  # what a client says may be 0 or less

    def _on_join_deadline(self, now_ms: int, step: Step) -> None:
        if self._initial_end_ms is not None and self._has_newcomer and now_ms < self._initial_end_ms:
            self._has_newcomer = False
            delay_ms = max(self._settings.initial_rebalance_delay_ms, 1)
            self._join_deadline_ms = min(now_ms + delay_ms, self._initial_end_ms)
        else:
            self._complete_join(now_ms, step)

    def _complete_join(self, now_ms: int, step: Step) -> None:
        self._join_deadline_ms = self._initial_end_ms = None
        self._remove_absent()
        if not self._members:
            self._become_empty(step)
            return
        leader = self._elect()
        if leader is None:  # static members only, none of them back yet
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms
            return
        self._leader = leader
        self._generation += 1
        self._protocol_name = self._members.select_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms
        for member in self._members:
            self._awaited_syncs.add(member.member_id)
            self._answer_join(member, self._joined(member), step)
            self._prolong(member, now_ms)
            member.is_new = False

    def _remove_absent(self) -> None:
        """Dynamic members that did not rejoin; static ones keep their place until their session ends."""
        if self._members.joining < len(self._members):
            for member in list(self._members):
                if member.join_ticket is None and member.instance_id is None:
                    self._forget(member)

    def _elect(self) -> Member | None:
        if self._leader is not None and self._leader.join_ticket is not None:
            return self._leader
        return next((member for member in self._members if member.join_ticket is not None), None)

    def _become_empty(self, step: Step) -> None:
        self._generation += 1
        self._protocol_name = None
        self._enter(GroupState.EMPTY)
        step.records.append(self._record())

    # SyncGroup

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> Step:
        step = Step()
        error = self._check_sync(request)
        if error is not ErrorCode.none:
            step.answers.append((ticket, SyncResult(error)))
            return step
        member = self._members[request.member_id]
        self._prolong(member, now_ms)
        self._awaited_syncs.discard(member.member_id)
        if not self._awaited_syncs:
            self._sync_deadline_ms = None
        if self._state is GroupState.STABLE:
            step.answers.append((ticket, self._synced(member)))
            return step
        # A client that asks again has given up its first request.
        self._answer_sync(member, SyncResult(ErrorCode.rebalance_in_progress), step)
        member.sync_ticket = ticket
        if member is self._leader:
            self._decide(request, now_ms, step)
        return step

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self._state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._members.check(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != self._generation:
            return ErrorCode.illegal_generation
        if request.protocol_type not in (None, self._protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if request.protocol_name not in (None, self._protocol_name):
            return ErrorCode.inconsistent_group_protocol
        if self._state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _decide(self, request: SyncRequest, now_ms: int, step: Step) -> None:
        """The leader has assigned; what it gives to those who are not members goes nowhere."""
        for member in self._members:
            member.assignment = request.assignments.get(member.member_id, b"")
        if sum(len(member.assignment) for member in self._members) > self._settings.max_metadata_bytes:
            self._refuse_syncs(ErrorCode.unknown_server_error, now_ms, step)
            self._rebalance(now_ms, step)
            return
        self._enter(GroupState.STABLE)
        step.records.append(self._record())
        for member in self._members:
            if member.sync_ticket is not None:
                self._answer_sync(member, self._synced(member), step)
                self._prolong(member, now_ms)

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.none, self._protocol_type, self._protocol_name, member.assignment)

    def _refuse_syncs(self, error: ErrorCode, now_ms: int, step: Step) -> None:
        for member in self._members:
            member.assignment = b""
            if member.sync_ticket is not None:
                self._answer_sync(member, SyncResult(error), step)
                self._prolong(member, now_ms)

    def _on_sync_deadline(self, now_ms: int, step: Step) -> None:
        """Who joined and never asked for its assignment is out."""
        self._sync_deadline_ms = None
        for member_id in list(self._awaited_syncs):
            self._forget(self._members[member_id])
        self._rebalance(now_ms, step)

    # Heartbeat, LeaveGroup, time

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        if self._state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._members.check(member_id, instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self._generation:
            return ErrorCode.illegal_generation
        self._prolong(self._members[member_id], now_ms)
        if self._state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, now_ms: int) -> Step:
        step = Step()
        before = len(self._members)
        errors = tuple(self._let_go(leaving, step) for leaving in members)
        self._after_removal(before, now_ms, step)
        step.answers.append((ticket, LeaveResult(errors)))
        return step

    def _let_go(self, leaving: LeavingMember, step: Step) -> ErrorCode:
        if self._state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if self._members.is_pending(leaving.member_id):
            self._members.discard_pending(leaving.member_id)
            self._sessions.discard(leaving.member_id)
            return ErrorCode.none
        member_id = leaving.member_id
        if member_id == NO_MEMBER:  # an administrator names the instance alone
            holder = self._members.instance(leaving.instance_id)
            member_id = holder.member_id if holder else NO_MEMBER
        error = self._members.check(member_id, leaving.instance_id)
        if error is ErrorCode.none:
            self._expel(self._members[member_id], step)
        return error

    def tick(self, now_ms: int) -> Step:
        step = Step()
        while (member_id := self._sessions.pop(now_ms)) is not None:
            self._on_session_end(member_id, now_ms, step)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._on_join_deadline(now_ms, step)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._on_sync_deadline(now_ms, step)
        return step

    def _on_session_end(self, member_id: str, now_ms: int, step: Step) -> None:
        before = len(self._members)
        if self._members.is_pending(member_id):
            self._members.discard_pending(member_id)
        else:
            member = self._members[member_id]
            if member.is_waiting and not member.is_new:
                return  # it is we who keep it waiting: its session goes on with the answer
            self._expel(member, step)
        self._after_removal(before, now_ms, step)

    def _after_removal(self, members_before: int, now_ms: int, step: Step) -> None:
        """A rebalance may have waited for a pending member that is gone; otherwise nobody misses that one."""
        if len(self._members) < members_before or self._state is GroupState.PREPARING_REBALANCE:
            self._rebalance(now_ms, step)

    # Offsets

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        error = self._check_commit(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            raise BrokerError(error)
        if member_id in self._members:
            self._prolong(self._members[member_id], now_ms)

    def _check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self._state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self._state is GroupState.EMPTY:
            return ErrorCode.none
        error = self._members.check(member_id, instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self._generation:
            return ErrorCode.illegal_generation
        if self._state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self._state is GroupState.DEAD:
            raise BrokerError(ErrorCode.group_id_not_found)

    def reads(self, topic: str) -> bool:
        if not self._members:
            return False
        topics = self._members.topics if self._protocol_type == PROTOCOL_TYPE else None
        return topics is None or topic in topics

    # What others see

    def describe(self) -> GroupDescription:
        """Metadata and assignments only while they hold."""
        is_stable = self._state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            state=self._state,
            protocol_type=self._protocol_type or "",
            protocol_name=(self._protocol_name or "") if is_stable else "",
            members=tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self._protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self._members
            ),
        )

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(ClassicGroupKey(self.group_id), None)]

    def give_up(self, error: ErrorCode) -> Step:
        step = Step()
        for member in self._members:
            self._answer_join(member, JoinResult(error, member.member_id), step)
            self._answer_sync(member, SyncResult(error), step)
        self._enter(GroupState.DEAD)
        self._sessions = Deadlines()
        self._join_deadline_ms = self._sync_deadline_ms = None
        return step

    # Small steps

    def _record(self) -> GroupRecord:
        return GroupRecord(ClassicGroupKey(self.group_id), self.saved())

    def _enter(self, state: GroupState) -> None:
        self._state = state
        self._state_timestamp_ms = self._wall_ms()

    def _prolong(self, member: Member, now_ms: int) -> None:
        if member.join_ticket is None:
            self._sessions.set(member.member_id, now_ms + member.session_timeout_ms)

    def _await_join(self, member: Member, ticket: Ticket, step: Step) -> None:
        # A client that asks again has given up its first request.
        self._answer_join(member, JoinResult(ErrorCode.rebalance_in_progress, member.member_id), step)
        self._members.await_join(member, ticket)

    def _answer_join(self, member: Member, result: JoinResult, step: Step) -> None:
        ticket = self._members.take_join_ticket(member)
        if ticket is not None:
            step.answers.append((ticket, result))

    def _answer_sync(self, member: Member, result: SyncResult, step: Step) -> None:
        if member.sync_ticket is not None:
            step.answers.append((member.sync_ticket, result))
            member.sync_ticket = None

    def _expel(self, member: Member, step: Step) -> None:
        self._answer_join(member, JoinResult(ErrorCode.unknown_member_id, NO_MEMBER), step)
        self._answer_sync(member, SyncResult(ErrorCode.unknown_member_id), step)
        self._forget(member)

    def _forget(self, member: Member) -> None:
        self._members.remove(member)
        self._sessions.discard(member.member_id)
        self._awaited_syncs.discard(member.member_id)
        if member is self._leader:
            self._leader = None
