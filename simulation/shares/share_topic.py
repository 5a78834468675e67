"""The topic that simulated share groups read, and its writer: batches of plain records.

An administrator may replace the topic by another one: the topic of a name is never used again after its deletion.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from simulation.clients.client import NoAnswer
from simulation.models.history import FILLING
from simulation.models.partition_history import Place
from simulation.models.transaction_model import TransactionModel
from simulation.scenarios.stage import Stage
from simulation.shares.share_order import draw_content


class ShareTopic:
    def __init__(self, number: int, partitions: int, configs: dict[str, str], replicas: int) -> None:
        self.name = f"work-{number}"
        self.number = number
        self.id: UUID | None = None
        self.configs = configs
        self.replicas = replicas
        self.places: list[Place] = [(self.name, index) for index in range(partitions)]
        self.written: dict[Place, set[int]] = {}
        """Offsets of records that were acknowledged and are in no transaction."""
        self.deleted_before: dict[Place, int] = {}
        self.model = TransactionModel()

    async def create(self, stage: Stage) -> None:
        """Create the topic at any broker, if it is not there, and learn its id."""
        broker = await stage.routing(f"create-{self.name}").any_broker()
        try:
            await broker.create_topic(self.name, len(self.places), self.configs, self.replicas)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
        self.id = (await broker.topic_ids()).get(self.name)
        if self.id is None:
            raise NoAnswer(f"{self.name} is not known yet")


class ShareWriter:
    def __init__(self, stage: Stage, topic: ShareTopic) -> None:
        self.name = "work-writer"
        self.topic = topic
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._sent = 0
        self.contents: Random | None = None
        """Draws keys and priorities of records; None for records without them."""

    async def step(self) -> None:
        await self.write(self._random.choice(self.topic.places), self._random.choice((1, 1, 3, 8)))

    async def write(self, place: Place, count: int) -> list[int]:
        """Write a batch of records; return their offsets."""
        topic, random = self.topic, self._random
        leader, _ = await self._routing.leader(*place)
        values = []
        for _ in range(count):
            self._sent += 1
            values.append(f"{self.name} {self._sent}".encode() + FILLING + bytes(random.choice((0, 10, 200))))
            topic.model.on_send(place, values[-1], 0, None, values[-1].decode())
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
        records = [self._record(value) for value in values]
        batch = build_batch(records, codec=codec)
        try:
            result = await leader.produce(*place, bytes(batch), -1, zstd=False).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        offsets = [result.base_offset + delta for delta in range(count)]
        for offset, value in zip(offsets, values, strict=True):
            topic.model.on_ack(value, offset)
        topic.written.setdefault(place, set()).update(offsets)
        self._stage.note(self.name, "produce", *place, result.base_offset, count)
        return offsets

    def _record(self, value: bytes) -> NewRecord:
        key, headers = (None, ()) if self.contents is None else draw_content(self.contents)
        return NewRecord(key, value, self._stage.now_ms(), headers)
