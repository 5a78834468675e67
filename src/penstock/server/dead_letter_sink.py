"""Writing of dead letters of share groups to the dead-letter topics of the cluster."""

from __future__ import annotations

from penstock.cluster.administration import Administration
from penstock.cluster.dead_letter_topics import check_permitted
from penstock.cluster.image import TopicImage
from penstock.cluster.topics import USE_DEFAULT, CreatableTopic
from penstock.config import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_GROUP_ENABLE
from penstock.errors import BrokerError, ErrorCode
from penstock.queues.dead_letter_record import Origin
from penstock.records.building import NewRecord, build_batch
from penstock.server.topic_writer import TopicWriter


class DeadLetterTopics:
    """Writer of dead letters. A batch that is sent again is stored once, because its producer id and sequence are the
    same.
    """

    def __init__(self, writer: TopicWriter, administration: Administration) -> None:
        self._writer = writer
        self._administration = administration

    async def producer_id(self) -> int:
        return await self._writer.producer_id()

    async def write(
        self, topic: str, source: Origin, records: list[NewRecord], producer_id: int, sequence: int
    ) -> None:
        metadata = self._writer.metadata
        check_permitted(metadata.image, topic, metadata.config)
        if topic == source.topic:
            raise BrokerError(
                ErrorCode.invalid_topic_exception,
                f"{topic} cannot be the dead-letter topic of group {source.group}: the message comes from this topic; "
                "set another dead-letter topic",
            )
        known = metadata.image.topic(topic)
        if known is None and metadata.config[DEAD_LETTER_AUTO_CREATE]:
            known = await self._create(topic, source)
        if known is None or not known.partitions:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"the dead-letter topic {topic} of group {source.group} does not exist; create it",
            )
        partition = source.partition % known.active_count
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        await self._writer.write(known, partition, batch)

    async def _create(self, topic: str, source: Origin) -> TopicImage:
        """Create a dead-letter topic with as many partitions as the topic of the records."""
        known = self._writer.metadata.image.topic(source.topic)
        partitions = USE_DEFAULT if known is None else len(known.partitions)
        wanted = CreatableTopic(topic, partitions, configs={DEAD_LETTER_GROUP_ENABLE.name: "true"})
        (created,) = await self._administration.create_topics([wanted])
        if isinstance(created, BrokerError):
            raise created  # the caller tries again after a pause, and finds the topic if another broker has created it
        return created
