"""Random histories of a group: clients of both protocols, lost responses, changing topics, restarting
coordinators.

Invariants:

1. One owner: no two members own the same partition, by the assignments they received and have not revoked;
no partition is assigned to, or being revoked by, two members.
2. Epochs of the group, and those that members see, never decrease while it has members, even over
conversions.
3. No lost member: only leaving, replacement and timeouts end a membership.
4. After every step, a replay of the log, compacted or not, restores the durable part of the group: all of
a consumer group, and the last recorded generation of a classic group.
5. Liveness: without further events, all members reach the target within a bounded time, and all partitions
are owned.
"""

from __future__ import annotations

from collections import Counter

from consumer_clients import NewClient, OldClient, World, pairs
from consumer_driver import image_of, topic
from group_log import durable
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import GroupState

NAMES = ("foo", "bar", "baz")
MAX_CLIENTS = 6
QUIET_ROUNDS = 45
QUIET_ROUNDS_AFTER_LOSS = 12
ROUND_MS = 4_000

subscriptions = st.frozensets(st.sampled_from(NAMES), min_size=1)
regexes = st.none() | st.sampled_from(["ba.*", "fo+|baz", "x"])
places = st.integers(0, MAX_CLIENTS - 1)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(image=image_of(foo=3, bar=2), group_initial_rebalance_delay_ms=0)
        self.clients: list[NewClient | OldClient] = []
        self.epoch = 0
        self.may_go: set[str] = set()
        self.members: dict[str, str | None] = {}

    def client(self, place: int) -> NewClient | OldClient:
        return self.clients[place % len(self.clients)]

    @initialize(topics=subscriptions)
    def begin(self, topics: frozenset[str]) -> None:
        self.clients.append(NewClient(self.world, topics, None, None))

    # Clients

    @precondition(lambda self: len(self.clients) < MAX_CLIENTS)
    @rule(topics=subscriptions, regex=regexes, instance=st.none() | st.sampled_from(["i", "j"]))
    def start_new(self, topics: frozenset[str], regex: str | None, instance: str | None) -> None:
        self.clients.append(NewClient(self.world, topics, regex, instance))

    @precondition(lambda self: len(self.clients) < MAX_CLIENTS)
    @rule(topics=subscriptions, is_eager=st.booleans())
    def start_old(self, topics: frozenset[str], is_eager: bool) -> None:
        self.clients.append(OldClient(self.world, topics, is_eager))

    @precondition(lambda self: self.clients)
    @rule(place=places, for_now=st.booleans())
    def leave(self, place: int, for_now: bool) -> None:
        client = self.client(place)
        is_static = isinstance(client, NewClient) and client.instance_id is not None
        self.may_go.add(client.member_id)
        client.leave(-2 if is_static and for_now else -1)
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def crash(self, place: int) -> None:
        self.clients.remove(self.client(place))

    # Requests and responses

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def send(self, place: int) -> None:
        client = self.client(place)
        if not client.is_waiting:
            client.send()

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def deliver(self, place: int) -> None:
        client = self.client(place)
        if client.is_waiting:
            client.deliver()
            self.bury()

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def exchange(self, place: int) -> None:
        self.send(place)
        self.deliver(place)

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def drop(self, place: int) -> None:
        client = self.client(place)
        if client.is_waiting:
            client.drop()

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def give_up(self, place: int) -> None:
        self.client(place).give_up()

    @precondition(lambda self: self.clients)
    @rule(place=places, topics=subscriptions, regex=regexes)
    def subscribe(self, place: int, topics: frozenset[str], regex: str | None) -> None:
        self.client(place).subscribe(topics, regex)

    # Topics, time and coordinators

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        known = self.world.image.topics.get(name)
        if known is None:
            self.world.see(self.world.image.with_topics([topic(name, more)]))
        elif len(known.partitions) < 5:
            self.world.grow(name, len(known.partitions) + more)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.world.image.topics:
            self.world.see(self.world.image.without_topics([name]))

    @rule(ms=st.sampled_from([1, 3_000, 9_000, 15_000, 46_000, 61_000]))
    def wait(self, ms: int) -> None:
        self.may_go |= self.world.member_ids
        self.world.pass_ms(ms)

    @rule(share=st.floats(0, 1), keeps_tombstones=st.booleans())
    def compact(self, share: float, keeps_tombstones: bool) -> None:
        end = round(share * len(self.world.log.records))
        self.world.compact(end, keeps_tombstones=keeps_tombstones)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        if isinstance(self.world.group, ClassicGroup):
            # A classic group records its members and generation when their leader has assigned.
            self.epoch = self.epoch_now()
            self.may_go |= set(self.members)
        for client in self.clients:
            if isinstance(client, OldClient):
                client.newest_generation = -1
                if client.is_waiting:
                    client.drop()

    @precondition(lambda self: self.clients)
    @rule(place=places)
    def stop_before_commit(self, place: int) -> None:
        """Crash the coordinator after a request changed its state and before the records were committed."""
        client = self.client(place)
        if client.is_waiting or (isinstance(client, OldClient) and client.is_joined):
            return
        committed = len(self.world.log.records)
        epoch, members = self.epoch, set(self.world.member_ids)
        client.send()
        self.may_go |= members | self.world.member_ids
        del self.world.log.records[committed:]
        self.world.restart()
        client.drop()
        self.epoch = min(epoch, self.epoch_now())
        for other in self.clients:
            if isinstance(other, OldClient):
                other.newest_generation = -1
                if other.is_waiting:
                    other.drop()

    def keep_one_of_each_instance(self) -> None:
        members = self.world.member_ids
        holders = sorted(self.clients, key=lambda client: client.member_id not in members)
        kept: dict[object, NewClient | OldClient] = {}
        for client in holders:
            kept.setdefault(getattr(client, "instance_id", None) or client, client)
        self.clients = [client for client in self.clients if client in kept.values()]

    def bury(self) -> None:
        self.clients = [client for client in self.clients if client.is_alive]

    # Invariants

    def epoch_now(self) -> int:
        group = self.world.group
        return group.generation if isinstance(group, ClassicGroup) else group.remembered.epoch

    @invariant()
    def one_owner(self) -> None:
        members = self.world.member_ids
        names = self.world.image.topic_names
        owners = Counter(
            pair
            for client in self.clients
            if client.member_id in members
            for pair in client.owned
            if pair[0] in names
        )
        assert all(number == 1 for number in owners.values()), owners
        if isinstance(self.world.group, ConsumerGroup):
            currents = [member.current for member in self.world.group.remembered.members.values()]
            held = Counter(
                pair
                for current in currents
                for pair in pairs(current.assigned) | pairs(current.pending_revocation)
            )
            assert sum(held.values()) == len(held), held

    @invariant()
    def epochs_only_grow(self) -> None:
        is_empty = self.world.group.is_empty  # and the next member of the other protocol begins a new group
        assert is_empty or self.epoch_now() >= self.epoch
        self.epoch = 0 if is_empty else self.epoch_now()

    @invariant()
    def nobody_is_lost(self) -> None:
        members = {each.member_id: each.instance_id for each in self.world.group.describe().members}
        lost = {
            member_id
            for member_id, instance_id in self.members.items()
            if member_id not in members and (instance_id is None or instance_id not in members.values())
        }
        assert lost <= self.may_go
        self.members, self.may_go = members, set()

    @invariant()
    def log_restores_the_group(self) -> None:
        self.world.log.check(self.world.group, self.world.now_ms)

    def teardown(self) -> None:
        """Run without further events."""
        self.keep_one_of_each_instance()
        self.let_quiet_time_pass(QUIET_ROUNDS)
        self.check_all_is_settled()
        for client in self.clients:
            client.start_over()
            client.send()
            client.drop()
        self.let_quiet_time_pass(QUIET_ROUNDS_AFTER_LOSS)
        self.check_all_is_settled()

    def let_quiet_time_pass(self, rounds: int) -> None:
        for turn in range(rounds):
            for client in self.clients:
                if turn == rounds // 2 and isinstance(self.world.group, ClassicGroup):
                    client.subscribe(client.topics, None)  # leaders notice changed topics by themselves
                for _ in range(3):
                    if not client.is_waiting:
                        client.send()
                    if client.is_waiting:
                        client.deliver()
                    client.give_up()
            self.bury()
            self.compact(1, keeps_tombstones=False)
            self.world.pass_ms(ROUND_MS)
            self.one_owner()

    def check_all_is_settled(self) -> None:
        if not self.clients:
            assert self.world.group.is_empty
            return
        assert self.world.group.state is GroupState.STABLE
        assert self.world.member_ids == {client.member_id for client in self.clients}
        wanted = set()
        for client in self.clients:
            topics = set(client.topics)
            if isinstance(client, NewClient) and client.regex:
                topics |= {"ba.*": {"bar", "baz"}, "fo+|baz": {"foo", "baz"}, "x": set()}[client.regex]
            for name in topics & self.world.image.topics.keys():
                known = self.world.image.topics[name]
                wanted |= {(known.id, number) for number in range(len(known.partitions))}
        owned = [pair for client in self.clients for pair in client.owned]
        assert sorted(owned) == sorted(wanted)
        if isinstance(self.world.group, ConsumerGroup):
            targets = self.world.group.remembered.targets
            for client in self.clients:
                assert client.owned == pairs(targets[client.member_id])
                epoch = client.epoch if isinstance(client, NewClient) else client.generation
                assert epoch == self.epoch_now()


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_forged_heartbeat_does_not_change_the_group() -> None:
    world = World(image=image_of(foo=3))
    world.join("a")
    before = durable(world.consumer)
    for member_id, epoch, code in (
        ("a", 7, ErrorCode.fenced_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
        ("b", -1, ErrorCode.unknown_member_id),
        ("a", -3, ErrorCode.fenced_member_epoch),
    ):
        assert world.beat(member_id, epoch).error is code
        assert durable(world.consumer) == before
