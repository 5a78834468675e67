"""A simulated producer of a cluster: it sends to the leader that it knows, and looks up the leader after an
error.
"""

from __future__ import annotations

from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.clients.producer import Batch, ProducerActor
from penstock.simulation.models.history import Outcome
from penstock.simulation.models.replicated_topic import ReplicatedTopic
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.cluster_stage import ClusterStage


class ClusterProducer(ProducerActor):
    def __init__(self, stage: ClusterStage, number: int) -> None:
        super().__init__(stage, number)
        self._routing = stage.routing(self.name)
        self._cluster = stage

    async def _deliver(self, topic: TopicModel, partition: int, batches: list[Batch]) -> None:
        began, writes = self._stage.world.loop.time(), [batch.write for batch in batches]
        await super()._deliver(topic, partition, batches)
        is_copied = any(write.acks == -1 and write.outcome is Outcome.OK for write in writes)
        if is_copied and isinstance(topic, ReplicatedTopic) and topic.state is TopicState.ALIVE:
            self._cluster.check_in_sync((topic.name, partition), topic.min_insync_replicas, began, writes[0])

    def _check_readable(self, topic: TopicModel, partition: int, offset: int) -> None:
        """Check nothing: with acks=1 a leader responds before its followers have the record."""

    async def _any_broker(self) -> SimulatedClient:
        return await self._routing.any_broker()

    async def _leader(self, topic: TopicModel, partition: int) -> SimulatedClient:
        client, _ = await self._routing.leader(topic.name, partition)
        return client

    def _on_failure(self, topic: TopicModel, partition: int) -> None:
        self._routing.mistrust(topic.name, partition)
