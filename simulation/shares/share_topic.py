"""The topic that simulated share groups read, and its writer: batches of plain records.

An administrator may replace the topic by another one: the topic of a name is never used again after its deletion.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.models.history import FILLING
from simulation.models.partition_history import Place
from simulation.models.transaction_model import TransactionModel
from simulation.scenarios.stage import Stage
from simulation.shares.share_order import draw_content

_KIND = "kind"
_WANTED, _UNWANTED = b"wanted", b"unwanted"
_FILTER = 'headers.kind == "wanted"'


class ShareTopic:
    def __init__(
        self, number: int, partitions: int, configs: dict[str, str], replicas: int, *, is_view: bool = False
    ) -> None:
        self.source = f"work-{number}"
        """The topic that has the records."""
        self.name = f"{self.source}.view" if is_view else self.source
        """The topic or view that groups read."""
        self.is_view = is_view
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
        """Create the topic and its view at any broker, if they are not there, and learn the id of what is read."""
        broker = await stage.routing(f"create-{self.name}").any_broker()
        await self._create(broker, self.source, self.configs, self.replicas)
        if self.is_view:
            await self._create(broker, self.name, {"view.of": self.source, "view.filter": _FILTER}, 1)
        self.id = (await broker.topic_ids()).get(self.name)
        if self.id is None:
            raise NoAnswer(f"{self.name} is not known yet")

    async def _create(
        self, broker: SimulatedClient, name: str, configs: dict[str, str], replicas: int
    ) -> None:
        try:
            await broker.create_topic(name, len(self.places), configs, replicas)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise


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
        place, count = self._random.choice(self.topic.places), self._random.choice((1, 1, 3, 8))
        wanted = [not self.topic.is_view or self._random.random() < 0.4 for _ in range(count)]
        await self.write(place, count, wanted)

    async def write(self, place: Place, count: int, wanted: Sequence[bool] = ()) -> list[int]:
        """Write a batch of records, of which groups read those that are wanted, or all; return their offsets."""
        topic, random = self.topic, self._random
        source = topic.source, place[1]
        leader, _ = await self._routing.leader(*source)
        wanted = wanted or [True] * count
        values = []
        for is_wanted in wanted:
            self._sent += 1
            values.append(f"{self.name} {self._sent}".encode() + FILLING + bytes(random.choice((0, 10, 200))))
            if is_wanted:
                topic.model.on_send(place, values[-1], 0, None, values[-1].decode())
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
        records = [self._record(*each) for each in zip(values, wanted, strict=True)]
        batch = build_batch(records, codec=codec)
        try:
            result = await leader.produce(*source, bytes(batch), -1, zstd=False).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*source)
            raise
        assert result is not None
        offsets = [result.base_offset + delta for delta in range(count) if wanted[delta]]
        for offset in offsets:
            topic.model.on_ack(values[offset - result.base_offset], offset)
        topic.written.setdefault(place, set()).update(offsets)
        self._stage.note(self.name, "produce", *place, result.base_offset, count)
        return offsets

    def _record(self, value: bytes, is_wanted: bool) -> NewRecord:
        key, headers = (None, ()) if self.contents is None else draw_content(self.contents)
        if self.topic.is_view:
            headers = (*headers, (_KIND, _WANTED if is_wanted else _UNWANTED))
        return NewRecord(key, value, self._stage.now_ms(), headers)
