"""Topics with known records, archivers, and the content of archives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.archive.archiver import ArchiveJob, ArchiveProgress, Archiver
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.options import parse
from penstock.pipeline.table_store import storage_options, store_at

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


def make(bootstrap: str, topic: str, partitions: int = 2, **config: str) -> None:
    """Create a topic. By default retention keeps all records, because the timestamps of `produce` are years old."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    given = {name.replace("_", "."): value for name, value in config.items()}
    settings = {"retention.ms": "-1", **given}
    admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(30)


def make_view(bootstrap: str, view: str, source: str, text: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"view.of": source, "view.filter": text}
    admin.create_topics([NewTopic(view, 1, config=config)])[view].result(30)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def produce(
    bootstrap: str, topic: str, numbers: Iterable[int], partitions: int = 2, step_ms: int = HOUR_MS
) -> None:
    """Produce records with timestamps `step_ms` apart. With the default of one hour they span several days."""
    producer = Producer({"bootstrap.servers": bootstrap})
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    for number in numbers:
        producer.produce(
            topic,
            b"value %d" % number,
            b"key %d" % (number % 10),
            partition=number % partitions,
            timestamp=START_MS + number * step_ms,
            headers=[("number", b"%d" % number)],
            on_delivery=note,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert refused == []


def job(bootstrap: str, place: object, topics: str, **options: Any) -> ArchiveJob:
    source = parse({"bootstrap": bootstrap, "subscribe": topics})
    return ArchiveJob(source, ArchiveTable.at(str(place)), **options)


def archive(spark: SparkSession, job: ArchiveJob) -> tuple[ArchiveProgress, list[str]]:
    """Run an archiver. Returns its final progress and its warnings."""
    warnings: list[str] = []
    *_, done = Archiver(job, lambda: spark, warnings.append).run()
    return done, warnings


def rows(place: object) -> list[dict[str, Any]]:
    options = storage_options(store_at(str(place)))
    table: pa.Table = DeltaTable(str(place), storage_options=options).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: (row["topic_id"], row["partition"], row["offset"]))


def numbers(found: Iterable[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"].removeprefix(b"value ")) for row in found)


def digest(values: Iterable[bytes]) -> str:
    """Digest of a multiset of records: independent of order, different if a record is missing or duplicated."""
    total = sum(int.from_bytes(hashlib.sha256(value).digest()) for value in values)
    return f"{total % (1 << 256):064x}"


def starts(bootstrap: str, topic: str) -> dict[int, int]:
    """Log start offset of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "starts"})
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), 30, cached=False)[0]
            for number in partitions
        }
    finally:
        consumer.close()


def delete_records(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
    done.result(30)


@dataclass(frozen=True)
class Read:
    number: int
    key: bytes
    partition: int
    offset: int
    timestamp_ms: int
    headers: dict[str, bytes]


def read_topic(bootstrap: str, topic: str) -> list[Read]:
    """All committed records of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        found: list[Read] = []
        while left:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
                continue
            found.append(
                Read(
                    int(message.value().removeprefix(b"value ")),
                    message.key(),
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    dict(message.headers() or ()),
                )
            )
        return found
    finally:
        consumer.close()
