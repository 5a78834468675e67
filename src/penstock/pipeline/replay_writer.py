"""Writer of replayed records in a task: writes the records of one source partition in order, in transactions.

Each transaction also commits the next source offset, for a consumer group that belongs to this source partition.
Another attempt of the task takes over the transactional id, which aborts the open transaction, and continues at the
committed offset. No record is written twice or skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.delay.headers import NOT_COPIED
from penstock.errors import PenstockError
from penstock.internal_client.groups import GroupCalls
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.records import RecordCalls
from penstock.internal_client.routes import Routes
from penstock.pipeline.offsets import run
from penstock.pipeline.read_settings import librdkafka_settings

ORIGINAL_TIMESTAMP = "penstock-original-timestamp"
"""Header with the original timestamp in milliseconds, for records that got a new timestamp."""

_RETRY_SECONDS = 60.0
_TRANSACTION_ROWS = 20_000
_TRANSACTION_BYTES = 16 << 20
_PROGRESS_PARTITION = 0


class ReplayFailed(PenstockError):
    pass


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    bootstrap: str
    topic: str
    partitions: int
    name: str
    """Name of the replay. A replay with the name of an earlier one continues it."""
    topic_ids: Mapping[str, str]
    """Topic ids of the source topics, by name."""
    oldest_ms: int | None
    """Oldest timestamp in milliseconds that a record keeps: retention would soon delete older records, so they get a
    new timestamp. None if all records get a new timestamp.
    """
    rows_per_second: float | None
    """Rate limit of one task; None for no limit."""

    def group(self, topic: str, partition: int) -> str:
        return f"penstock-replay-{self.name}-{self.topic_ids[topic]}-{partition}"


def write_rows(target: ReplayTarget, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one source partition. Yields the number of records written."""
    written = 0
    writer: _ReplayWriter | None = None
    try:
        for batch in rows:
            if batch.num_rows:
                writer = writer or _ReplayWriter(
                    target, batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
                )
                written += writer.write(batch)
        if writer is not None:
            writer.commit()
    except KafkaException as error:
        raise ReplayFailed(f"writing to {target.topic} failed: {error.args[0].str()}") from error
    yield pa.RecordBatch.from_pydict({"written": pa.array([written], pa.int64())})


def replayed_up_to(target: ReplayTarget, topic: str, partition: int) -> int | None:
    """Next source offset to replay; None if no transaction of the replay has been committed."""
    return committed_offset(target.bootstrap, target.group(topic, partition), target.topic)


def active_partitions(bootstrap: str, topic: str) -> int:
    """Number of active partitions of a topic, which are those that accept new records."""

    async def look_up(routes: Routes) -> int:
        return (await routes.topic(topic)).active_count

    return run(bootstrap, look_up)


def committed_offset(bootstrap: str, group: str, topic: str) -> int | None:
    """Committed offset of a group for partition 0 of a topic, after pending transactional commits have ended."""

    async def fetch(routes: Routes) -> int | None:
        groups = GroupCalls(routes, RecordCalls(routes))
        found = await groups.committed(group, topic, [_PROGRESS_PARTITION], require_stable=True)
        return found.get(_PROGRESS_PARTITION)

    return run(bootstrap, fetch)


class _ReplayWriter:
    def __init__(self, target: ReplayTarget, topic: str, partition: int) -> None:
        self._target = target
        self._source = (topic, partition)
        group = target.group(topic, partition)
        self._producer = Producer(
            {
                **librdkafka_settings(target.bootstrap),
                "transactional.id": group,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 2 * _TRANSACTION_ROWS,
            }
        )
        # This call comes first: it aborts the open transaction of an earlier attempt, after which the committed
        # offset cannot change.
        self._producer.init_transactions(_RETRY_SECONDS)
        self._next_offset = replayed_up_to(target, topic, partition) or 0
        consumer = Consumer({**librdkafka_settings(target.bootstrap), "group.id": group})
        self._group_metadata = consumer.consumer_group_metadata()
        consumer.close()
        self._is_open = False
        self._rows = 0
        self._bytes = 0
        self._started = time.monotonic()
        self._paced_rows = 0
        self._failures: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> int:
        written = 0
        for row in batch.to_pylist():
            if row["offset"] < self._next_offset:
                continue
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            self._send(row)
            self._next_offset = row["offset"] + 1
            written += 1
            if self._rows >= _TRANSACTION_ROWS or self._bytes >= _TRANSACTION_BYTES:
                self.commit()
        return written

    def commit(self) -> None:
        if not self._is_open:
            return
        progress = TopicPartition(self._target.topic, _PROGRESS_PARTITION, self._next_offset)
        self._producer.send_offsets_to_transaction([progress], self._group_metadata, _RETRY_SECONDS)
        self._producer.commit_transaction(_RETRY_SECONDS)
        if self._failures:
            raise ReplayFailed(f"writing to {self._target.topic} failed: {self._failures[0].str()}")
        self._is_open = False
        self._paced_rows += self._rows
        self._rows = self._bytes = 0
        self._keep_pace()

    def _send(self, row: dict[str, Any]) -> None:
        key, value, source_partition = row["key"], row["value"], self._source[1]
        headers = [
            (each["key"], each["value"]) for each in row["headers"] or () if each["key"] not in NOT_COPIED
        ]
        original_ms = int(row["timestamp"].timestamp() * 1000 + 0.5)
        options: dict[str, Any] = {}
        if self._target.oldest_ms is not None and original_ms >= self._target.oldest_ms:
            options["timestamp"] = original_ms
        else:
            headers.append((ORIGINAL_TIMESTAMP, b"%d" % original_ms))
        partitions = self._target.partitions
        partition = source_partition % partitions if key is None else partition_for(key, partitions)
        while True:
            try:
                self._producer.produce(
                    self._target.topic,
                    value,
                    key,
                    partition,
                    headers=headers,
                    on_delivery=self._note,
                    **options,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        self._rows += 1
        self._bytes += len(key or b"") + len(value or b"")

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(error)

    def _keep_pace(self) -> None:
        if self._target.rows_per_second is not None:
            due = self._started + self._paced_rows / self._target.rows_per_second
            time.sleep(max(0.0, due - time.monotonic()))
