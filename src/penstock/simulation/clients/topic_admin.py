"""The common part of the administrators of a broker alone and of a cluster: creating, growing and deleting topics."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from penstock.errors import BrokerError
from penstock.simulation.clients.client import NoAnswer, SimulatedClient
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.stage import Stage


class TopicAdmin(ABC):
    name = "admin"

    def __init__(self, stage: Stage, most_partitions: int) -> None:
        self._stage = stage
        self._most_partitions = most_partitions
        self._random = stage.world.random(self.name)

    async def create_first_topics(self) -> None:
        while not self._stage.living_topics():
            try:
                await self._create()
            except NoAnswer:
                await asyncio.sleep(0.1)

    @abstractmethod
    async def _create(self) -> None:
        """Draw and create a topic, if there are not too many."""

    @abstractmethod
    async def _broker(self) -> SimulatedClient:
        """Connect to any broker."""

    @abstractmethod
    def _may_delete(self, topic: TopicModel) -> bool: ...

    async def _create_topic(self, topic: TopicModel, replication_factor: int) -> None:
        broker = await self._broker()
        self._stage.topics[topic.name] = topic
        try:
            await broker.create_topic(topic.name, len(topic.partitions), topic.configs, replication_factor)
        except BrokerError as error:
            self._stage.note(self.name, "create", topic.name, error.code.name)
            return  # an audit finds out whether the topic exists
        topic.state = TopicState.ALIVE
        self._stage.note(self.name, "create", topic.name, "ok")

    async def _grow(self) -> None:
        """Add a partition to a topic."""
        topic = self._stage.choose_topic(self._random)
        if topic is None or len(topic.partitions) >= self._most_partitions:
            return
        broker = await self._broker()
        topic.asked_partitions = len(topic.partitions) + 1
        await broker.create_partitions(topic.name, topic.asked_partitions)
        topic.grow(topic.asked_partitions)
        self._stage.note(self.name, "grow", topic.name, topic.asked_partitions)

    async def _delete(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None or not self._may_delete(topic):
            return
        broker = await self._broker()
        topic.state = TopicState.DELETING
        await broker.delete_topic(topic.name)
        topic.state = TopicState.DELETED
        topic.deleted_at = self._stage.world.loop.time()
        self._stage.note(self.name, "delete", topic.name, "ok")
