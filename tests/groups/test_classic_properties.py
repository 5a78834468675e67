"""Classic groups under random interleavings of clients, time, lost coordinators and refused appends.

Invariants:

1. Within a generation a partition has at most one owner, over all responses to SyncGroup and over
restarts.
2. Generations never decrease: a response never has an older generation than any response of the same
coordinator, nor, over restarts, than any generation with a returned assignment. (A generation that was
joined and never assigned may be reused after a restart: it has no owners.)
3. Every ticket gets at most one response; none is left when the group is quiet.
4. No member is lost: once inputs stop and the living clients behave, the group is Stable within bounded
time, its members are exactly the living clients, and each has the assignment of its leader.
5. Totals equal a recount; every member that the group could wait for has a deadline, and removed members
have none.
6. DescribeGroups shows what the members were told.
7. After every step, a replay of the records restores the last recorded generation, which is the present
state of a Stable or Empty group.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from classic_driver import settings as group_settings
from group_log import GroupLog, check_totals
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from penstock.cluster.image import ClusterImage
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.group import (
    GroupState,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from penstock.groups.records import ClassicGroupValue

PARTITIONS = 7
MAX_SIZE = 6
QUIET_STEP_MS = 500
QUIET_WITHIN_MS = 400_000
"""Bound for a new client that died while it waited: five minutes, then a rebalance or two."""

INSTANCE_IDS = st.sampled_from([None, "i", "j"])
RETRY = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.coordinator_not_available)


@dataclass(eq=False)
class Client:
    number: int
    instance_id: str | None
    two_step: bool
    skips: bool
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    generation: int = -1
    wants: str = "join"
    """Next action of the client: join, sync or heartbeat."""
    ticket: int | None = None
    lead: JoinResult | None = None
    assignment: bytes | None = None
    is_alive: bool = True

    @property
    def is_settled(self) -> bool:
        return self.wants == "heartbeat" and self.ticket is None


@dataclass
class Answers:
    asked: dict[int, Client | None] = field(default_factory=dict)
    given: Counter[int] = field(default_factory=Counter)


class ClassicGroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(
        target=clients,
        delay_ms=st.sampled_from([0, 1_000]),
        instance_ids=st.lists(INSTANCE_IDS, max_size=4),
        steps=st.integers(0, 4),
    )
    def start(self, delay_ms: int, instance_ids: list[str | None], steps: int) -> Any:
        self.now_ms = 0
        self.settings = group_settings(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=MAX_SIZE,
            group_min_session_timeout_ms=1_000,
        )
        self.image = ClusterImage("")
        self.log = GroupLog(self)
        self.group = self.made()
        self.durable: ClassicGroupValue | None = None
        self.refuses_append = False
        self.all: list[Client] = []
        self.answers = Answers()
        self.tickets = count()
        self.ids = count()
        self.owners: dict[tuple[int, int], str] = {}
        self.answered_generation = -1
        self.assigned_generation = -1
        self.told: dict[tuple[int, str], bytes] = {}
        first = [
            self.comes(instance_id, True, True, 9_000, 3_000, bool(place % 2))
            for place, instance_id in enumerate(instance_ids)
        ]
        for _ in range(steps):
            self.all_act()
            self.advance(1_000)
        return multiple(*first)

    def made(self) -> ClassicGroup:
        """Return the group of a coordinator that starts now."""
        restored = self.log.restart(self.now_ms)
        if restored is None:
            return ClassicGroup("g", self.settings, self.wall_ms)
        assert isinstance(restored, ClassicGroup)
        return restored

    def wall_ms(self) -> int:
        return self.now_ms

    @property
    def living(self) -> int:
        return sum(client.is_alive for client in self.all)

    # Actions of clients

    @rule(
        target=clients,
        instance_id=INSTANCE_IDS,
        two_step=st.booleans(),
        skips=st.booleans(),
        session_ms=st.sampled_from([2_000, 9_000]),
        rebalance_ms=st.sampled_from([1_500, 3_000, 9_000]),
        prefers_range=st.booleans(),
    )
    def comes(
        self,
        instance_id: str | None,
        two_step: bool,
        skips: bool,
        session_ms: int,
        rebalance_ms: int,
        prefers_range: bool,
    ) -> Any:
        if self.living >= MAX_SIZE + 2:
            return multiple()
        # All clients support both: only the selected protocol survives a restart, and others would be refused
        # after it.
        protocols = (("range", b"0"), ("sticky", b"0"))
        client = Client(
            len(self.all),
            instance_id,
            two_step,
            skips,
            session_ms,
            rebalance_ms,
            protocols if prefers_range else protocols[::-1],
        )
        self.all.append(client)
        self.act(client)
        return client

    @rule(client=clients)
    def acts(self, client: Client) -> None:
        if client.is_alive and client.ticket is None:
            self.act(client)

    @rule(rounds=st.integers(1, 5))
    def all_behave(self, rounds: int) -> None:
        for _ in range(rounds):
            self.all_act()
            self.advance(QUIET_STEP_MS)

    @rule(rounds=st.integers(1, 5))
    def followers_behave(self, rounds: int) -> None:
        """Let all clients but the leader act, so that they wait for it."""
        for _ in range(rounds):
            leader = self.group.saved().leader
            for client in self.all:
                if client.member_id != leader or not leader:
                    self.acts(client)
            self.advance(QUIET_STEP_MS)

    def all_act(self) -> None:
        for client in self.all:
            self.acts(client)

    @rule(client=clients)
    def asks_again(self, client: Client) -> None:
        """Repeat the waiting request over another connection, after the first one broke."""
        if client.is_alive and client.ticket is not None:
            client.ticket = None
            self.act(client)

    @rule(client=clients, metadata=st.binary(max_size=2))
    def subscribes_anew(self, client: Client, metadata: bytes) -> None:
        if client.is_alive and client.ticket is None:
            client.protocols = tuple((name, metadata) for name, _ in client.protocols)
            client.wants = "join"

    @rule(client=clients)
    def rejoins(self, client: Client) -> None:
        if client.is_alive and client.ticket is None:
            client.wants = "join"

    @precondition(lambda self: self.living >= 3 or len(self.all) > 6)
    @rule(client=consumes(clients))
    def dies(self, client: Client) -> None:
        client.is_alive = False

    @rule(target=clients, client=consumes(clients), old_lives=st.booleans())
    def starts_again(self, client: Client, old_lives: bool) -> Any:
        """Join as a static client without its member id, perhaps while its previous instance still runs."""
        if client.instance_id is None or not client.is_alive:
            return client
        client.is_alive = old_lives
        successor = Client(
            len(self.all),
            client.instance_id,
            client.two_step,
            client.skips,
            client.session_ms,
            client.rebalance_ms,
            client.protocols,
        )
        self.all.append(successor)
        self.act(successor)
        return multiple(client, successor)

    @precondition(lambda self: self.living >= 3 or len(self.all) > 6)
    @rule(client=clients, by_instance=st.booleans())
    def leaves(self, client: Client, by_instance: bool) -> None:
        if not client.is_alive or not client.member_id:
            return
        if client.instance_id is None:
            client.is_alive = False
            leaving = LeavingMember(client.member_id, None)
        else:  # static clients do not leave; an administrator removes them
            leaving = LeavingMember("" if by_instance else client.member_id, client.instance_id)
        ticket = self.ticket(None)
        self.take(self.group.leave([leaving], ticket, self.now_ms))

    @rule(client=clients)
    def commits(self, client: Client) -> None:
        try:
            self.group.check_commit(client.member_id, client.instance_id, client.generation, self.now_ms)
        except BrokerError:
            return
        if client.generation >= 0:
            assert client.generation == self.group.generation

    @rule(client=clients, generation=st.integers(-1, 6), member_id=st.sampled_from(["", "forged"]))
    def forger_syncs(self, client: Client, generation: int, member_id: str) -> None:
        everything = {other.member_id: b"".join(bytes([p]) for p in range(PARTITIONS)) for other in self.all}
        ticket = self.ticket(None)
        request = SyncRequest(member_id, None, generation, None, None, everything)
        self.take(self.group.sync(request, ticket, self.now_ms))
        assert (
            self.group.heartbeat(member_id, client.instance_id, generation, self.now_ms) is not ErrorCode.none
        )

    # Faults

    @rule(ms=st.sampled_from([1, 500, 1_000, 1_000, 2_000, 9_000]))
    def time_passes(self, ms: int) -> None:
        self.advance(ms)

    @rule()
    def coordinator_restarts(self) -> None:
        self.restart(self.group.give_up(ErrorCode.coordinator_not_available))

    @rule()
    def next_append_is_refused(self) -> None:
        self.refuses_append = True

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            due_ms = self.group.next_deadline_ms
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(self.now_ms))
        else:
            raise AssertionError("time stands still")
        self.now_ms = end_ms

    def restart(self, farewell: GroupStep) -> None:
        self.answered_generation = self.assigned_generation
        self.group = self.made()
        for ticket, answer in farewell.answers:
            self.deliver(ticket, answer)

    # Requests of a client

    def ticket(self, client: Client | None) -> int:
        ticket = next(self.tickets)
        self.answers.asked[ticket] = client
        if client is not None:
            client.ticket = ticket
        return ticket

    def act(self, client: Client) -> None:
        if client.wants == "join":
            request = JoinRequest(
                client.member_id,
                client.instance_id,
                f"c{client.number}",
                "/h",
                "consumer",
                client.protocols,
                client.session_ms,
                client.rebalance_ms,
                f"m{next(self.ids)}-{client.instance_id}",
                client.two_step,
                client.skips,
            )
            self.take(self.group.join(request, self.ticket(client), self.now_ms))
        elif client.wants == "sync":
            assignments = {}
            if client.lead is not None and not client.lead.skip_assignment:
                assignments = assign([member_id for member_id, _, _ in client.lead.members])
            sync = SyncRequest(
                client.member_id, client.instance_id, client.generation, None, None, assignments
            )
            self.take(self.group.sync(sync, self.ticket(client), self.now_ms))
        else:
            error = self.group.heartbeat(client.member_id, client.instance_id, client.generation, self.now_ms)
            self.on_error(client, error)

    def take(self, step: GroupStep) -> None:
        if step.records and self.refuses_append:
            self.refuses_append = False
            lost = [(ticket, ErrorCode.coordinator_not_available) for ticket, _ in step.answers]
            farewell = self.group.give_up(ErrorCode.coordinator_not_available)
            farewell.answers.extend(lost)
            self.restart(farewell)
            return
        for record in step.records:
            assert isinstance(record.value, ClassicGroupValue)
            self.durable = record.value
        self.log.append(step.records)
        self.log.check(self.group, self.now_ms)
        for ticket, answer in step.answers:
            self.deliver(ticket, answer)

    def deliver(self, ticket: object, answer: Any) -> None:
        assert isinstance(ticket, int)
        self.answers.given[ticket] += 1
        assert self.answers.given[ticket] == 1, "answered twice"
        client = self.answers.asked[ticket]
        if isinstance(answer, JoinResult) and answer.error is ErrorCode.none:
            self.check_generation(answer.generation)
        if client is None:
            forged = isinstance(answer, SyncResult)
            assert not forged or answer.error is not ErrorCode.none
            return
        if isinstance(answer, SyncResult) and answer.error is ErrorCode.none:
            self.check_assignment(client, answer)
        if client.ticket != ticket:
            return
        client.ticket = None
        if not client.is_alive:
            return
        if isinstance(answer, ErrorCode):
            self.on_error(client, answer)
        elif answer.error is not ErrorCode.none:
            if answer.error is ErrorCode.member_id_required:
                client.member_id = answer.member_id
            self.on_error(client, answer.error)
        elif isinstance(answer, JoinResult):
            client.member_id, client.generation, client.wants = answer.member_id, answer.generation, "sync"
            client.lead = answer if answer.leader == answer.member_id else None
        else:
            client.assignment, client.wants = answer.assignment, "heartbeat"

    def on_error(self, client: Client, error: ErrorCode) -> None:
        if error is ErrorCode.none:
            return
        client.wants = "join"
        if error is ErrorCode.unknown_member_id:
            client.member_id = ""
        elif error in (ErrorCode.fenced_instance_id, ErrorCode.group_max_size_reached):
            client.is_alive = False
        else:
            assert error in RETRY or error is ErrorCode.member_id_required, error

    # Invariants

    def check_generation(self, generation: int) -> None:
        assert generation >= self.answered_generation
        self.answered_generation = generation

    def check_assignment(self, client: Client, answer: SyncResult) -> None:
        generation = self.group.generation
        self.check_generation(generation)
        self.assigned_generation = generation
        assert self.durable is not None
        assert self.durable.generation == generation, "answered before it was durable"
        if client.ticket in self.answers.given:
            self.told[generation, client.member_id] = answer.assignment
        for partition in answer.assignment:
            owner = client.instance_id or client.member_id
            assert self.owners.setdefault((generation, partition), owner) == owner

    @invariant()
    def counts_are_true(self) -> None:
        members = self.group._members
        assert members.joining == sum(member.join_ticket is not None for member in members)
        check_totals(members)
        assert not members._pending & set(members._by_id)
        assert members.size <= MAX_SIZE

    @invariant()
    def nobody_is_waited_for_without_a_deadline(self) -> None:
        group, members = self.group._state, self.group._members
        with_deadline = set(group._sessions._deadlines_ms)
        assert {
            m.member_id for m in members if not m.is_waiting or m.is_new
        } <= with_deadline - members._pending
        assert members._pending <= with_deadline <= set(members._by_id) | members._pending
        assert (group._join_deadline_ms is not None) == (
            group.current_state is GroupState.PREPARING_REBALANCE
        )
        assert (group._sync_deadline_ms is not None) == bool(group._awaited_syncs)
        assert group._awaited_syncs <= set(members._by_id)
        if group.current_state is GroupState.COMPLETING_REBALANCE:
            assert group.leader is not None
            assert group.leader.member_id in group._awaited_syncs

    @invariant()
    def who_waits_waits_for_what_is_to_come(self) -> None:
        group = self.group
        for member in group._members:
            assert member.join_ticket is None or group.state is GroupState.PREPARING_REBALANCE
            assert member.sync_ticket is None or group.state is GroupState.COMPLETING_REBALANCE
        waiting = sum(member.is_waiting for member in group._members)
        assert waiting == len(self.answers.asked) - len(self.answers.given)
        assert (group.state is GroupState.EMPTY) == (len(group._members) == 0) or (
            group.state is GroupState.PREPARING_REBALANCE and group._members._pending
        )
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            leader = group._state.leader
            assert leader is not None
            assert group._members.get(leader.member_id) is leader

    @invariant()
    def description_is_what_members_were_told(self) -> None:
        described = self.group.describe()
        assert described.state is self.group.state
        if described.state is GroupState.STABLE:
            for member in described.members:
                told = self.told.get((self.group.generation, member.member_id), member.assignment)
                assert told == member.assignment

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        self.refuses_append = False
        end_ms = self.now_ms + QUIET_WITHIN_MS
        while not self.is_quiet():
            assert self.now_ms < end_ms, f"{self.group.state} {self.group.describe()} {self.all}"
            self.all_act()
            self.advance(QUIET_STEP_MS)
        assert len(self.answers.given) == len(self.answers.asked)
        assert set(self.answers.given.values()) <= {1}
        living = [client for client in self.all if client.is_alive]
        assigned = sorted(partition for client in living for partition in client.assignment or b"")
        assert assigned == (list(range(PARTITIONS)) if living else [])
        self.counts_are_true()
        self.nobody_is_waited_for_without_a_deadline()
        self.who_waits_waits_for_what_is_to_come()

    def is_quiet(self) -> bool:
        living = [client for client in self.all if client.is_alive]
        if self.group._members._pending or self.group.state is not (
            GroupState.STABLE if living else GroupState.EMPTY
        ):
            return False
        members = {member.member_id for member in self.group.describe().members}
        return members == {client.member_id for client in living} and all(
            client.is_settled and client.generation == self.group.generation for client in living
        )


def assign(member_ids: list[str]) -> dict[str, bytes]:
    """Assign round robin."""
    ordered = sorted(member_ids)
    return {
        member_id: bytes(range(place, PARTITIONS, len(ordered))) for place, member_id in enumerate(ordered)
    }


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
