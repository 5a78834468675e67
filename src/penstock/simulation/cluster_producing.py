"""A simulated producer of a cluster: it sends to the leader it knows, and looks for another when it is refused."""

from __future__ import annotations

from penstock.simulation.client import SimulatedClient
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.history import InvariantViolated, Outcome
from penstock.simulation.producing import Batch, ProducerActor
from penstock.simulation.replicated_topic import ReplicatedTopic
from penstock.simulation.topic_model import TopicModel, TopicState

_HEARSAY_SECONDS = 0.5
"""How long after a write a leader that is not kept from the store goes by what was recorded before."""


class ClusterProducer(ProducerActor):
    def __init__(self, stage: ClusterStage, number: int, *, is_strict: bool = False) -> None:
        """`is_strict`: no leader is kept from what is recorded."""
        super().__init__(stage, number)
        self._routing = stage.routing(self.name)
        self.is_strict = is_strict
        self._history = stage.history

    async def _deliver(self, topic: TopicModel, partition: int, batches: list[Batch]) -> None:
        began, writes = self._stage.world.loop.time(), [batch.write for batch in batches]
        await super()._deliver(topic, partition, batches)
        is_copied = any(write.acks == -1 and write.outcome is Outcome.OK for write in writes)
        if (
            is_copied
            and self.is_strict
            and isinstance(topic, ReplicatedTopic)
            and topic.state is TopicState.ALIVE
        ):
            most = self._history.most_in_sync((topic.name, partition), began - _HEARSAY_SECONDS)
            if most < topic.min_insync_replicas:
                raise InvariantViolated("T15", f"{writes[0]} was acknowledged with {most} in sync")

    async def _anybody(self) -> SimulatedClient:
        return await self._routing.anybody()

    async def _leader(self, topic: TopicModel, partition: int) -> SimulatedClient:
        client, _ = await self._routing.leader(topic.name, partition)
        return client

    def _on_failure(self, topic: TopicModel, partition: int) -> None:
        self._routing.mistrust(topic.name, partition)
