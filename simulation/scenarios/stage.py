"""The state that all actors of a seed share: the world, its brokers, the coordination store, the topics, and the
gate at which clients wait.

The gate of a broker alone is closed from the end of its process until the next one was audited; that of a
cluster is always open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

from penstock.cluster import znodes
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.model import TopicPartition
from penstock.state_log.partitioning import partition_of
from simulation.clients.client import SimulatedClient
from simulation.clients.routing_client import RoutingClient
from simulation.machine.clock import SimulatedClock
from simulation.machine.host import SimulatedWorld
from simulation.models.group_model import GroupModel
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import PartitionHistory, Place, RecordedEnsemble
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.broker_host import PORT, BrokerHost
from simulation.scenarios.store_host import StoreHost

CLIENT_HOST = "clients"
_HEARSAY_SECONDS = 0.5
"""Seconds after a write to the store in which a leader that can reach the store may act on the state before
it.
"""


class Stage:
    def __init__(
        self, world: SimulatedWorld, members: Sequence[BrokerHost], ensemble: RecordedEnsemble
    ) -> None:
        self.world = world
        self.members = members
        self.ensemble = ensemble
        self.is_alone = len(members) == 1
        """Whether there is a single broker, whose restarts clients wait for."""
        self.traits: frozenset[str] = frozenset()
        """The traits of the seed, see `cluster_traits`."""
        self.store_host: StoreHost | None = None
        """The server of the store, in seeds whose brokers reach it over sockets."""
        self.topics: dict[str, TopicModel] = {}
        self.groups: list[GroupModel] = []
        self.report_seconds = 0.2
        """The seconds between two reports of a group member."""
        self.is_at_rest = False
        """Whether peace has come: no member of a group joins or leaves any more."""
        self.is_quiet = False
        """Whether clients send nothing, so that a scrub reads logs that do not grow."""
        self.is_damaged: Callable[[str, int], bool] = lambda topic, partition: False
        """Whether a replica of the partition has lost committed records and is not repaired yet."""
        self.is_strict = False
        """Whether every broker can reach the store, so that responses follow from recent in-sync sets."""
        self.internal_min_in_sync = 1
        """`min.insync.replicas` of the internal topics."""
        self.operations = 0
        self.gate = asyncio.Event()
        if not self.is_alone:
            self.gate.set()
        self._clients: list[SimulatedClient] = []
        self._clock = self.broker.host.clock if self.is_alone else SimulatedClock(world.loop.time)

    @property
    def broker(self) -> BrokerHost:
        """The first broker, and the only one where there is no cluster."""
        return self.members[0]

    def member(self, node_id: int) -> BrokerHost:
        return next(member for member in self.members if member.node_id == node_id)

    def now_ms(self) -> int:
        """Return the time of the clients' clocks: that of a broker alone, or a right one where the clocks of
        several machines jump.
        """
        return self._clock.now_ms()

    @property
    def have_clocks_jumped(self) -> bool:
        """Whether the wall clock of a broker has jumped."""
        return any(member.host.clock.has_jumped for member in self.members)

    def note(self, who: str, what: str, *details: object) -> None:
        """Record an operation of a client with its outcome."""
        self.operations += 1
        self.world.trace.record("op", who, what, *details)

    # --- connections

    def routing(self, name: str, gate: asyncio.Event | None = None) -> RoutingClient:
        """Return a client of all brokers, which waits at the gate of the stage or at its own."""
        brokers = {member.node_id: self.connection(name, member.node_id, gate) for member in self.members}
        random = self.world.random(f"{name}/routing")
        return RoutingClient(name, brokers, random, is_alone=self.is_alone)

    def connection(self, name: str, node_id: int, gate: asyncio.Event | None = None) -> SimulatedClient:
        member, network = self.member(node_id), self.world.network.host(CLIENT_HOST)
        label, purpose = f"{name}@{node_id}", f"{name}/client/{node_id}"
        if self.is_alone:
            label, purpose = name, f"{name}/client"
        client = SimulatedClient(
            label, network, (member.host.name, PORT), gate or self.gate, self.world.random(purpose)
        )
        self._clients.append(client)
        return client

    def close_gate(self) -> None:
        """Close the gate and all connections, so that no response of the dead process reaches a client."""
        self.gate.clear()
        for client in self._clients:
            client.disconnect()

    # --- topics

    def living_topics(self) -> list[TopicModel]:
        return [topic for topic in self.topics.values() if topic.state is TopicState.ALIVE]

    def living(self, name: str) -> TopicModel | None:
        topic = self.topics.get(name)
        return topic if topic is not None and topic.state is TopicState.ALIVE else None

    async def topic_id(self, client: SimulatedClient, topic: TopicModel) -> UUID | None:
        """Look up a topic id; None for a topic that does not exist."""
        if topic.id is None:
            ids = await client.topic_ids()
            for known in self.living_topics():
                known.id = known.id or ids.get(known.name)
        return topic.id if topic.state is TopicState.ALIVE else None

    async def topic_of(self, client: SimulatedClient, topic_id: UUID) -> TopicModel | None:
        for topic in self.living_topics():
            if await self.topic_id(client, topic) == topic_id:
                return topic
        return None

    def choose_topic(self, random: Random) -> TopicModel | None:
        alive = self.living_topics()
        return random.choice(alive) if alive else None

    def choose_partition(self, random: Random) -> tuple[TopicModel, int] | None:
        topic = self.choose_topic(random)
        return None if topic is None else (topic, random.randrange(len(topic.partitions)))

    # --- the recorded state of partitions

    @property
    def history(self) -> PartitionHistory:
        return self.ensemble.history

    def partition(self, topic: str, index: int) -> znodes.PartitionNode | None:
        """Return the recorded state of a partition."""
        return self.history.now.get((topic, index))

    def check_in_sync(self, place: Place, minimum: int, began: float, what: object) -> None:
        """Check the size of the in-sync set for a write that was sent at `began` and is acknowledged now: it
        was recorded with `minimum` members at some moment between.
        """
        most = self.history.most_in_sync(place, began - _HEARSAY_SECONDS)
        if self.is_strict and most < minimum:
            raise InvariantViolated("T15", f"{what} was acknowledged with {most} in sync")

    def check_internal(self, topic: str, key: str, began: float, what: object) -> None:
        """Check the same for a record of a group or of a transactional id."""
        count = sum(name == topic for name, _ in self.history.now)
        if count:
            self.check_in_sync((topic, partition_of(key, count)), self.internal_min_in_sync, began, what)

    def coordinates(self, node_id: int, group: str) -> bool:
        """Whether this broker is the recorded coordinator of a group, and knows it."""
        count = sum(topic == OFFSETS_TOPIC for topic, _ in self.history.now)
        return count > 0 and self.leads(node_id, OFFSETS_TOPIC, partition_of(group, count))

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """Return the recorded leader epoch of a partition, if its leader knows it."""
        state = self.partition(topic, index)
        if state is None or not self.leads(state.leader, topic, index):
            return None
        return state.leader_epoch

    def leads(self, node_id: int, topic: str, index: int) -> bool:
        """Whether this broker is the recorded leader, and knows it: then its responses are up to date."""
        state = self.partition(topic, index)
        if state is None or state.leader != node_id or node_id < 0:
            return False
        member = self.member(node_id)
        if not member.is_serving:
            return False
        return any(
            replica.partition.is_leader and replica.partition.leader_epoch == state.leader_epoch
            for replica in member.replicas()
            if replica.name == TopicPartition(topic, index)
        )
