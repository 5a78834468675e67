"""What everybody in a simulated cluster shares: its brokers, the store they agree by, its topics.

The clients' clock is right: those of the brokers' machines may jump.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.model import TopicPartition
from penstock.simulation.broker_host import PORT
from penstock.simulation.client import SimulatedClient
from penstock.simulation.clock import SimulatedClock
from penstock.simulation.cluster_member import ClusterMember
from penstock.simulation.host import SimulatedWorld
from penstock.simulation.partition_history import PartitionHistory, RecordedEnsemble
from penstock.simulation.routing import RoutingClient
from penstock.simulation.stage import CLIENT_HOST, Stage


class ClusterStage(Stage):
    def __init__(
        self, world: SimulatedWorld, members: Sequence[ClusterMember], ensemble: RecordedEnsemble
    ) -> None:
        super().__init__(world, members[0])
        self.members = members
        self.ensemble = ensemble
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
        """As the store has it."""
        return self.history.now.get((topic, index))

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """In which its leader leads, where that knows it."""
        state = self.partition(topic, index)
        if state is None or not self.leads(state.leader, topic, index):
            return None
        return state.leader_epoch

    def leads(self, node_id: int, topic: str, index: int) -> bool:
        """Whether this broker leads, as recorded, and knows it: what it says then is the last word."""
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
