"""Conversion of Arrow rows to records, and the choice of their partitions: the partition in the row; else by the key,
as in all Kafka clients; else round robin, changing after a number of rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.internal_client.routes import Routes
from penstock.pipeline.sink.key_partitions import partitions_for
from penstock.pipeline.sink.options import HEADERS, KEY, PARTITION, TOPIC, VALUE
from penstock.records.building import NewRecord
from penstock.records.content import Headers

RecordsByPartition = dict[tuple[str, int], list[NewRecord]]

_STRETCH = 1_000
"""Number of consecutive rows without a key that go to the same partition. A larger number makes larger batches."""


class BadRow(PenstockError):
    """A row has no topic, or names a partition that the topic does not have."""


class RowPlacement:
    def __init__(self, routes: Routes, topic: str | None, first: int) -> None:
        """`first` is the first partition for rows without a key. Each task starts at a different one."""
        self._routes = routes
        self._topic = topic
        self._turn = first
        self._left = _STRETCH

    async def place(self, rows: pa.RecordBatch, timestamp_ms: int) -> RecordsByPartition:
        """Records by topic and partition, in the order of the rows."""
        count = rows.num_rows
        binary_keys = _binary(rows, KEY)
        keys, values = binary_keys.to_pylist(), _binary(rows, VALUE).to_pylist()
        headers = [*map(_headers, _plain(rows, HEADERS))]
        chosen = _plain(rows, PARTITION)
        topics = [self._topic] * count if self._topic is not None else _plain(rows, TOPIC)
        sizes = {topic: await self._partitions(topic) for topic in set(topics)}
        of_keys = {size: partitions_for(binary_keys, size) for size in set(sizes.values())}
        placed: RecordsByPartition = {}
        columns = zip(topics, keys, values, headers, chosen, strict=True)
        for row, (topic, key, value, header, partition) in enumerate(columns):
            size = sizes[topic]
            if partition is None:
                partition = self._next() % size if key is None else of_keys[size][row]
            elif not 0 <= partition < size:
                raise BadRow(f"a row names partition {partition} of {topic}, which has {size} partitions")
            record = NewRecord(key, value, timestamp_ms, header)
            placed.setdefault((topic, partition), []).append(record)
        return placed

    async def _partitions(self, topic: str | None) -> int:
        if topic is None:
            raise BadRow("a row has no topic: its column 'topic' is null, and there is no option 'topic'")
        return (await self._routes.topic(topic)).active_count

    def _next(self) -> int:
        if not self._left:
            self._turn += 1
            self._left = _STRETCH
        self._left -= 1
        return self._turn


def _plain(rows: pa.RecordBatch, name: str) -> list[Any]:
    return rows.column(name).to_pylist() if name in rows.schema.names else [None] * rows.num_rows


def _binary(rows: pa.RecordBatch, name: str) -> pa.BinaryArray:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _headers(found: list[dict[str, Any]] | None) -> Headers:
    return tuple((each["key"], each["value"]) for each in found) if found else ()
