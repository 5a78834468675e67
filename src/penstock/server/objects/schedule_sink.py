"""Access of schedules to their topics: partition of a firing, search for an earlier write, and write."""

from __future__ import annotations

from penstock.cluster.image import TopicImage
from penstock.config import PRODUCER_ID_EXPIRATION_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.partitioner import partition_for
from penstock.schedules.agent import FiringPartition, LookedUp
from penstock.schedules.schedule import Intent
from penstock.server.inspection.find_batch import find_batch
from penstock.server.topic_writer import FIND_BATCH, TopicWriter, WantedBatch
from penstock.threads import Threads


class ScheduleTopics:
    def __init__(self, writer: TopicWriter, threads: Threads) -> None:
        self._writer = writer
        self._threads = threads

    def topic(self, name: str) -> TopicImage:
        topic = self._writer.metadata.image.topic(name)
        if topic is None or not topic.active_count:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"the topic {name!r} does not exist; create it with `penstock topic create {name}`",
            )
        return topic

    def place(self, name: str, topic: str, key: bytes | None) -> FiringPartition:
        known = self.topic(topic)
        chosen = partition_for(name.encode() if key is None else key, known.active_count)
        return FiringPartition(str(known.id), chosen)

    async def producer_id(self) -> int:
        return await self._writer.producer_id()

    async def look_up(self, topic: str, partition: int, intent: Intent | None) -> LookedUp:
        known, wanted = self.topic(topic), None
        if intent is not None:
            wanted = WantedBatch(intent.producer_id, intent.sequence, intent.from_offset)
        if self._writer.leads(known, partition):
            replica = self._writer.replica_of(known, partition)
            return LookedUp(*await find_batch(self._threads, replica, wanted))
        arguments = {} if wanted is None else wanted._asdict()
        answer = await self._writer.ask_leader(known, partition, FIND_BATCH, **arguments)
        return LookedUp(answer["high_watermark"], answer["is_found"])

    async def write(self, topic: str, partition: int, batch: bytearray) -> None:
        await self._writer.write(self.topic(topic), partition, batch)

    @property
    def expiration_ms(self) -> int:
        return self._writer.metadata.config[PRODUCER_ID_EXPIRATION_MS]
