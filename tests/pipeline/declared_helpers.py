"""Declared pipelines in tests: topics with orders as JSON, and runs in the shared Spark session."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from penstock.declared.checking import check_pipeline
from penstock.declared.definition import PipelineDefinition, definition_of
from penstock.pipeline.running.pipeline_run import PipelineRun, RunPlace, run_of

SCHEMA = "id bigint not null, customer string, total double"


def declared(**document: Any) -> PipelineDefinition:
    document.setdefault("name", "test")
    assert check_pipeline(document) == []
    return definition_of(document)


def send(bootstrap: str, topic: str, values: Iterable[Any], **options: Any) -> None:
    """Produce values: bytes as they are, others as JSON."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for place, value in enumerate(values):
        content = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        producer.produce(topic, content, f"k{place % 7}".encode(), **options)
    assert producer.flush(60) == 0


def messages(bootstrap: str, topic: str) -> list[Message]:
    """All committed messages of a topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reads",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        left = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        found = []
        while left:
            message = consumer.poll(30)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
            else:
                found.append(message)
        return found
    finally:
        consumer.close()


def run_once(
    spark: SparkSession,
    bootstrap: str,
    definition: PipelineDefinition,
    directory: Path,
    *,
    last_batch: int | None = None,
) -> PipelineRun:
    """Run a pipeline up to the current end of its source. Raises the reason of a failure."""
    place = RunPlace(bootstrap, str(directory / "checkpoints" / definition.name), last_batch)
    run = run_of(definition, place, lambda text: None)
    run.start(spark, once=True)
    try:
        run.wait(threading.Event())
    finally:
        run.stop()
    return run
