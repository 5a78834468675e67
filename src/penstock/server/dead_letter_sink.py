"""The dead-letter topics of the cluster, as share-partitions write them."""

from __future__ import annotations

from penstock.cluster.internal_topics import is_internal
from penstock.errors import BrokerError, ErrorCode
from penstock.queues.dead_letters import Origin
from penstock.records.building import NewRecord, build_batch
from penstock.server.topic_writer import TopicWriter


class DeadLetterTopics:
    """Each batch is written once: a partition recognises a repeated sequence of a producer."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer

    async def producer_id(self) -> int:
        return await self._writer.producer_id()

    async def write(
        self, topic: str, source: Origin, records: list[NewRecord], producer_id: int, sequence: int
    ) -> None:
        known = self._writer.metadata.image.topic(topic)
        if is_internal(topic) or topic == source.topic:
            raise BrokerError(
                ErrorCode.invalid_topic_exception,
                f"{topic} cannot be the dead-letter topic of group {source.group}: it is internal, or its own topic",
            )
        if known is None or not known.partitions:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"the dead-letter topic {topic} of group {source.group} does not exist; create it",
            )
        partition = source.partition % len(known.partitions)
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        await self._writer.write(known, partition, batch)
