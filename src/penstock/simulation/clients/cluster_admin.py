"""A simulated administrator of a cluster: creates, grows, reassigns and deletes replicated topics."""

from __future__ import annotations

from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.clients.topic_admin import TopicAdmin
from penstock.simulation.faults.cluster_traits import LOST_LEADER, topic_settings
from penstock.simulation.models.replicated_topic import ReplicatedTopic
from penstock.simulation.models.topic_model import TopicModel
from penstock.simulation.scenarios.cluster_stage import ClusterStage

_MOST_TOPICS = 4
_MOST_PARTITIONS = 3


class ClusterAdmin(TopicAdmin):
    def __init__(self, stage: ClusterStage) -> None:
        super().__init__(stage, _MOST_PARTITIONS)
        self._cluster = stage
        self._kinds = stage.world.random(f"{self.name}/kinds")
        self._routing = stage.routing(self.name)
        self._reassignments = self._random.choice((0, 0, 2, 8))
        """The weight of reassignments in this seed."""

    async def step(self) -> None:
        acts = (self._create, self._grow, self._delete, self._reassign, self._cancel_reassignment)
        [act] = self._random.choices(acts, weights=(2, 1, 1, self._reassignments, self._reassignments / 4))
        await act()

    async def _broker(self) -> SimulatedClient:
        return await self._routing.any_broker()

    async def _create(self) -> None:
        """Create a topic with a new name, so that no late request finds another topic under it."""
        if len(self._stage.living_topics()) >= _MOST_TOPICS:
            return
        name = f"topic-{len(self._stage.topics)}"
        replicas = self._random.choice((3, 3, 3, 2, min(4, len(self._cluster.members))))
        if LOST_LEADER in self._cluster.traits:
            replicas = 3  # a partition without eligible leaders keeps its last replica from being lost
        configs = {
            "segment.bytes": str(self._random.choice((2_000, 20_000, 1_000_000))),
            "min.insync.replicas": str(self._random.choice((1, 2)) if replicas > 2 else 1),
        }
        if LOST_LEADER in self._cluster.traits:
            configs["min.insync.replicas"] = "2"
        configs |= topic_settings(self._kinds, self._cluster.traits)
        topic = ReplicatedTopic(name, 1, self._random.randint(1, 2), configs)
        await self._create_topic(topic, replicas)

    async def _reassign(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        if self._cluster.is_damaged(topic.name, partition):
            return
        nodes = [member.node_id for member in self._cluster.members]
        count = self._random.choice((2, 3, 3))
        broker = await self._routing.any_broker()
        replicas = self._random.sample(nodes, count)
        await broker.reassign(topic.name, partition, replicas)
        self._stage.note(self.name, "reassign", topic.partitions[partition].name, *replicas)

    async def _cancel_reassignment(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is not None:
            topic, partition = chosen
            broker = await self._routing.any_broker()
            await broker.reassign(topic.name, partition, None)
            self._stage.note(self.name, "cancel reassignment", topic.partitions[partition].name)

    def _may_delete(self, topic: TopicModel) -> bool:
        return len(self._stage.living_topics()) > 1 and not self._is_damaged(topic)

    def _is_damaged(self, topic: TopicModel) -> bool:
        """Whether a replica of the topic is damaged: it is kept until it is repaired, so that a missing
        repair is noticed.
        """
        return any(self._cluster.is_damaged(topic.name, index) for index in range(len(topic.partitions)))
