"""A simulated administrator of a broker alone: creates, alters, truncates and deletes topics, and creates
them again.
"""

from __future__ import annotations

import random

from penstock.errors import BrokerError
from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.clients.topic_admin import TopicAdmin
from penstock.simulation.models.topic_model import TopicModel
from penstock.simulation.scenarios.stage import Stage

TOPIC_NAMES = ("orders", "payments", "audit.log", "clicks_2")
_DURABILITIES = ("auto", "auto", "fsync", "os")
_MOST_PARTITIONS = 4
_QUIET_SECONDS = 15.0
"""Seconds before the name of a deleted topic is used again: until then a late request for the old topic may
arrive.
"""


class AdminActor(TopicAdmin):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, _MOST_PARTITIONS)
        self._client = stage.client(self.name)

    async def step(self) -> None:
        acts = (self._create, self._grow, self._alter, self._truncate, self._delete)
        [act] = self._random.choices(acts, weights=(2, 1, 4, 6, 1))
        await act()

    async def _broker(self) -> SimulatedClient:
        await self._client.connect()
        return self._client

    async def _create(self) -> None:
        """Create a topic under a free name, if there is one; the name of a deleted topic may be free again."""
        now = self._stage.world.loop.time()
        free = [name for name in TOPIC_NAMES if self._is_free(name, now)]
        if not free:
            return
        name = self._random.choice(free)
        earlier = self._stage.topics.get(name)
        incarnation = earlier.incarnation + 1 if earlier else 1
        configs = topic_configs(self._random)
        topic = TopicModel(name, incarnation, self._random.randint(1, 3), configs)
        await self._create_topic(topic, replication_factor=1)

    def _is_free(self, name: str, now: float) -> bool:
        topic = self._stage.topics.get(name)
        if topic is None:
            return True
        return topic.deleted_at is not None and now > topic.deleted_at + _QUIET_SECONDS

    def _may_delete(self, topic: TopicModel) -> bool:
        return len(self._stage.topics) > 1

    async def _alter(self) -> None:
        topic = self._stage.choose_topic(self._random)
        if topic is None:
            return
        await self._client.connect()
        name, value = self._random.choice(
            (
                ("durability", self._random.choice(_DURABILITIES)),
                ("durability", self._random.choice(_DURABILITIES)),
                ("segment.bytes", str(self._random.choice((1_024, 4_096, 100_000)))),
                ("index.interval.bytes", str(self._random.choice((1, 300, 4_096)))),
            )
        )
        if name == "durability":
            topic.begin_durability(value)
        try:
            await self._client.set_topic_config(topic.name, name, value)
        except BrokerError as error:
            self._stage.note(self.name, "alter", topic.name, name, value, error.code.name)
            return
        if name == "durability":
            topic.end_durability(value)
        self._stage.note(self.name, "alter", topic.name, name, value, "ok")

    async def _truncate(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        await self._client.connect()
        model = topic.partitions[partition]
        before = self._random.randint(model.log_start, max(model.visible_end, model.log_start))
        model.log_start_limit = max(model.log_start_limit, before)
        view = model.view()
        try:
            log_start = await self._client.delete_records(topic.name, partition, before)
        except BrokerError as error:
            self._stage.note(self.name, "truncate", model.name, before, error.code.name)
            return
        self._stage.note(self.name, "truncate", model.name, before, log_start)
        model.on_truncation(view, log_start)


def topic_configs(random: random.Random) -> dict[str, str]:
    configs = {
        "durability": random.choice(_DURABILITIES),
        "segment.bytes": str(random.choice((1_024, 3_000, 20_000, 1_000_000))),
        "index.interval.bytes": str(random.choice((1, 200, 4_096))),
    }
    if random.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if random.random() < 0.25:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    elif random.random() < 0.25:
        configs["retention.bytes"] = str(random.choice((2_000, 20_000)))
    if random.random() < 0.2:
        configs["segment.ms"] = str(random.choice((200, 2_000)))
    return configs
