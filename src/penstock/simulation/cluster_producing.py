"""A simulated producer of a cluster: it sends to the leader it knows, and looks for another when it is refused."""

from __future__ import annotations

from penstock.simulation.client import SimulatedClient
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.producing import ProducerActor
from penstock.simulation.topic_model import TopicModel


class ClusterProducer(ProducerActor):
    def __init__(self, stage: ClusterStage, number: int) -> None:
        super().__init__(stage, number)
        self._routing = stage.routing(self.name)

    async def _anybody(self) -> SimulatedClient:
        return await self._routing.anybody()

    async def _leader(self, topic: TopicModel, partition: int) -> SimulatedClient:
        client, _ = await self._routing.leader(topic.name, partition)
        return client

    def _on_failure(self, topic: TopicModel, partition: int) -> None:
        self._routing.mistrust(topic.name, partition)
