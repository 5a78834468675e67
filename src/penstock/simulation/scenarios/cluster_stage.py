"""The state that all actors of a simulated cluster share: its brokers, the coordination store and the topics.

The clock of the clients is right; the clocks of the brokers' machines may jump.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.cluster import znodes
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.model import TopicPartition
from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.clients.routing_client import RoutingClient
from penstock.simulation.machine.clock import SimulatedClock
from penstock.simulation.machine.host import SimulatedWorld
from penstock.simulation.models.history import InvariantViolated
from penstock.simulation.models.partition_history import PartitionHistory, Place, RecordedEnsemble
from penstock.simulation.scenarios.broker_host import PORT
from penstock.simulation.scenarios.cluster_member import ClusterMember
from penstock.simulation.scenarios.stage import CLIENT_HOST, Stage
from penstock.state_log.partitioning import partition_of

_HEARSAY_SECONDS = 0.5
"""Seconds after a write to the store in which a leader that can reach the store may act on the state before
it.
"""


class ClusterStage(Stage):
    def __init__(
        self, world: SimulatedWorld, members: Sequence[ClusterMember], ensemble: RecordedEnsemble
    ) -> None:
        super().__init__(world, members[0])
        self.members: Sequence[ClusterMember] = members
        self.ensemble = ensemble
        self.traits: frozenset[str] = frozenset()
        """The traits of the seed, see `cluster_traits`."""
        self.is_damaged: Callable[[str, int], bool] = lambda topic, partition: False
        """Whether a replica of the partition has lost committed records and is not repaired yet."""
        self.is_strict = False
        """Whether every broker can reach the store, so that responses follow from recent in-sync sets."""
        self.internal_min_in_sync = 1
        """`min.insync.replicas` of the internal topics."""
        self._clock = SimulatedClock(world.loop.time)
        self.gate.set()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def history(self) -> PartitionHistory:
        return self.ensemble.history

    def routing(self, name: str) -> RoutingClient:
        brokers = {member.node_id: self.connection(name, member.node_id) for member in self.members}
        return RoutingClient(name, brokers, self.world.random(f"{name}/routing"))

    def connection(self, name: str, node_id: int) -> SimulatedClient:
        return SimulatedClient(
            f"{name}@{node_id}",
            self.world.network.host(CLIENT_HOST),
            (self.member(node_id).host.name, PORT),
            self.gate,
            self.world.random(f"{name}/client/{node_id}"),
        )

    def member(self, node_id: int) -> ClusterMember:
        return next(member for member in self.members if member.node_id == node_id)

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
