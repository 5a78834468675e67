"""A simulated administrator of a cluster: creates, grows, reassigns and deletes replicated topics."""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError
from penstock.simulation.client import NoAnswer
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.cluster_traits import LOST_LEADER, topic_settings
from penstock.simulation.replicated_topic import ReplicatedTopic
from penstock.simulation.topic_model import TopicModel, TopicState

_MOST_TOPICS = 4
_MOST_PARTITIONS = 3


class ClusterAdmin:
    def __init__(self, stage: ClusterStage) -> None:
        self.name = "admin"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._kinds = stage.world.random(f"{self.name}/kinds")
        self._routing = stage.routing(self.name)
        self._moves = self._random.choice((0, 0, 2, 8))
        """The weight of reassignments in this seed."""

    async def step(self) -> None:
        acts = (self._create, self._grow, self._delete, self._move, self._stop_moving)
        [act] = self._random.choices(acts, weights=(2, 1, 1, self._moves, self._moves / 4))
        await act()

    async def create_first_topics(self) -> None:
        while not self._stage.living_topics():
            try:
                await self._create()
            except NoAnswer:
                await asyncio.sleep(0.1)

    async def _create(self) -> None:
        """Create a topic with a new name, so that no late request finds another topic under it."""
        if len(self._stage.living_topics()) >= _MOST_TOPICS:
            return
        name = f"topic-{len(self._stage.topics)}"
        copies = self._random.choice((3, 3, 3, 2, min(4, len(self._stage.members))))
        if LOST_LEADER in self._stage.traits:
            copies = 3  # a partition without eligible leaders keeps its last replica from being lost
        configs = {
            "segment.bytes": str(self._random.choice((2_000, 20_000, 1_000_000))),
            "min.insync.replicas": str(self._random.choice((1, 2)) if copies > 2 else 1),
        }
        if LOST_LEADER in self._stage.traits:
            configs["min.insync.replicas"] = "2"
        configs |= topic_settings(self._kinds, self._stage.traits)
        topic = ReplicatedTopic(name, 1, self._random.randint(1, 2), configs)
        broker = await self._routing.any_broker()
        self._stage.topics[name] = topic
        try:
            await broker.create_topic(name, len(topic.partitions), configs, copies)
        except BrokerError as error:
            self._stage.note(self.name, "create", name, error.code.name)
            return  # the audit finds out whether the topic exists
        topic.state = TopicState.ALIVE
        self._stage.note(self.name, "create", name, "ok")

    async def _grow(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None or len(topic.partitions) >= _MOST_PARTITIONS:
            return
        broker = await self._routing.any_broker()
        topic.asked_partitions = len(topic.partitions) + 1
        await broker.create_partitions(topic.name, topic.asked_partitions)
        topic.grow(topic.asked_partitions)
        self._stage.note(self.name, "grow", topic.name, topic.asked_partitions)

    async def _move(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        if self._stage.is_damaged(topic.name, partition):
            return
        nodes = [member.node_id for member in self._stage.members]
        copies = self._random.choice((2, 3, 3))
        broker = await self._routing.any_broker()
        replicas = self._random.sample(nodes, copies)
        await broker.reassign(topic.name, partition, replicas)
        self._stage.note(self.name, "move", topic.partitions[partition].name, *replicas)

    async def _stop_moving(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is not None:
            topic, partition = chosen
            broker = await self._routing.any_broker()
            await broker.reassign(topic.name, partition, None)
            self._stage.note(self.name, "stop moving", topic.partitions[partition].name)

    async def _delete(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None or len(self._stage.living_topics()) < 2 or self._is_damaged(topic):
            return
        broker = await self._routing.any_broker()
        topic.state = TopicState.DELETING
        await broker.delete_topic(topic.name)
        topic.state = TopicState.DELETED
        self._stage.note(self.name, "delete", topic.name, "ok")

    def _is_damaged(self, topic: TopicModel) -> bool:
        """Whether a replica of the topic is damaged: it is kept until it is repaired, so that a missing
        repair is noticed.
        """
        return any(self._stage.is_damaged(topic.name, index) for index in range(len(topic.partitions)))
