"""A simulated administrator: creates, grows and deletes topics, alters and truncates those of a broker alone, and
reassigns the partitions of a cluster.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError
from simulation.clients.client import NoAnswer
from simulation.clients.topic_drafts import DURABILITIES, draft_topic
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage


class Administrator:
    name = "admin"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._kinds = stage.world.random(f"{self.name}/kinds")
        self._routing = stage.routing(self.name)
        self._most_partitions = 4 if stage.is_alone else 3
        self._alterations, self._truncations = (4, 6) if stage.is_alone else (0, 0)
        self._reassignments = 0 if stage.is_alone else self._random.choice((0, 0, 2, 8))
        """The weight of reassignments in this seed."""

    async def create_first_topics(self) -> None:
        while not self._stage.living_topics():
            try:
                await self._create()
            except NoAnswer:
                await asyncio.sleep(0.1)

    async def step(self) -> None:
        acts = {
            self._create: 2,
            self._grow: 1,
            self._alter: self._alterations,
            self._truncate: self._truncations,
            self._delete: 1,
            self._reassign: self._reassignments,
            self._cancel_reassignment: self._reassignments / 4,
        }
        [act] = self._random.choices(list(acts), weights=list(acts.values()))
        await act()

    # --- topics

    async def _create(self) -> None:
        topic = draft_topic(self._stage, self._random, self._kinds)
        if topic is None:
            return
        broker = await self._routing.any_broker()
        self._stage.topics[topic.name] = topic
        try:
            await broker.create_topic(topic.name, len(topic.partitions), topic.configs, topic.replicas)
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
        broker = await self._routing.any_broker()
        topic.asked_partitions = len(topic.partitions) + 1
        await broker.create_partitions(topic.name, topic.asked_partitions)
        topic.grow(topic.asked_partitions)
        self._stage.note(self.name, "grow", topic.name, topic.asked_partitions)

    async def _delete(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None or not self._may_delete(topic):
            return
        broker = await self._routing.any_broker()
        topic.state = TopicState.DELETING
        await broker.delete_topic(topic.name)
        topic.state = TopicState.DELETED
        topic.deleted_at = self._stage.world.loop.time()
        self._stage.note(self.name, "delete", topic.name, "ok")

    def _may_delete(self, topic: TopicModel) -> bool:
        """Whether another topic remains and no replica of this one is damaged. A damaged topic is kept until it is
        repaired, so that a missing repair is noticed. A broker alone may be left without a topic.
        """
        others = self._stage.topics if self._stage.is_alone else self._stage.living_topics()
        places = [(topic.name, index) for index in range(len(topic.partitions))]
        return len(others) > 1 and not any(self._stage.is_damaged(*place) for place in places)

    # --- settings and records

    async def _alter(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None:
            return
        broker = await self._routing.any_broker()
        name, value = self._random.choice(
            (
                ("durability", self._random.choice(DURABILITIES)),
                ("durability", self._random.choice(DURABILITIES)),
                ("segment.bytes", str(self._random.choice((1_024, 4_096, 100_000)))),
                ("index.interval.bytes", str(self._random.choice((1, 300, 4_096)))),
            )
        )
        if name == "durability":
            topic.begin_durability(value)
        try:
            await broker.set_topic_config(topic.name, name, value)
        except BrokerError as error:
            self._stage.note(self.name, "alter", topic.name, name, value, error.code.name)
            return
        if name == "durability":
            topic.end_durability(value)
        self._stage.note(self.name, "alter", topic.name, name, value, "ok")

    async def _truncate(self) -> None:
        """Delete the records before some offset."""
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        leader, _ = await self._routing.leader(topic.name, partition)
        model = topic.partitions[partition]
        before = self._random.randint(model.log_start, max(model.visible_end, model.log_start))
        model.log_start_limit = max(model.log_start_limit, before)
        view = model.view()
        try:
            log_start = await leader.delete_records(topic.name, partition, before)
        except BrokerError as error:
            self._stage.note(self.name, "truncate", model.name, before, error.code.name)
            return
        self._stage.note(self.name, "truncate", model.name, before, log_start)
        model.on_truncation(view, log_start)

    # --- replicas

    async def _reassign(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        if self._stage.is_damaged(topic.name, partition):
            return
        nodes = [member.node_id for member in self._stage.members]
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
