"""Streaming query without Spark: calls tasks and driver of the sink as Spark does, in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.pipeline.offsets import run
from penstock.pipeline.sink import stream_writer
from penstock.pipeline.sink.held_transactions import open_under
from penstock.pipeline.sink.options import parse_sink
from penstock.pipeline.sink.stream_writer import SinkStreamWriter, SinkTask, TaskResult

EMPTY_POLLS = 600
_names = itertools.count()


def new_topic(bootstrap: str, partitions: int = 2, replicas: int = 1) -> str:
    topic = f"sunk-{next(_names)}-{uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(30)
    return topic


def rows_of(values: Iterable[str], **columns: Sequence[object]) -> pa.RecordBatch:
    values = [*values]
    return pa.RecordBatch.from_pydict({"key": values, "value": values, **columns})


class Query:
    """Streaming query. Each call stands for one process."""

    def __init__(self, bootstrap: str, topic: str, patch: pytest.MonkeyPatch, **options: str) -> None:
        self.bootstrap = bootstrap
        self.id = str(uuid4())
        self.writer = SinkStreamWriter(parse_sink({"bootstrap": bootstrap, "topic": topic, **options}))
        self._patch = patch

    def write(self, batch: int, number: int, rows: Iterable[pa.RecordBatch]) -> TaskResult:
        self._patch.setattr(stream_writer, "_task", lambda: SinkTask(self.id, batch, number))
        written = self.writer.write(iter(rows))
        assert isinstance(written, TaskResult)
        return written

    def run(self, batch: int, values: Sequence[str]) -> list[TaskResult]:
        """Run all tasks of a batch."""
        return [
            self.write(batch, 0, [rows_of(values[::2])]),
            self.write(batch, 1, [rows_of(values[1::2])]),
        ]

    @property
    def open_ids(self) -> list[str]:
        found = run(self.bootstrap, lambda routes: open_under(routes, f"spark-sink/{self.id}/"))
        return sorted(each.transactional_id or "" for each in found)


@contextmanager
def reading(bootstrap: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "sunk",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    try:
        yield consumer
    finally:
        consumer.close()


def committed(bootstrap: str, topic: str) -> list[str]:
    """All committed values, sorted. Fails if a reader of committed records does not reach the end of a
    partition.
    """
    with reading(bootstrap, topic) as consumer:
        ends = {
            each.partition: consumer.get_watermark_offsets(each, 30, cached=False)[1]
            for each in consumer.assignment()
        }
        found: list[str] = []
        patience = EMPTY_POLLS
        while patience:
            positions = {each.partition: each.offset for each in consumer.position(consumer.assignment())}
            if all(max(positions[number], 0) >= end for number, end in ends.items()):
                return sorted(found)
            messages = consumer.consume(1000, 0.1)
            found += [(each.value() or b"").decode() for each in messages if each.error() is None]
            patience = EMPTY_POLLS if messages else patience - 1
        raise AssertionError(f"readers are held up at {positions} of {ends}")
