"""Writer of one sink task: cluster connections, and an event loop that runs during each call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.internal_client.transactions import ProducerIdentity
from penstock.pipeline.read_settings import open_routes
from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.sink.producer import BatchProducer, RecordPosition
from penstock.pipeline.sink.row_placement import RowPlacement

T = TypeVar("T")


class TaskWriter:
    def __init__(self, options: SinkOptions, task: int) -> None:
        """`task` is the number of the task among all tasks of the batch."""
        self.routes = open_routes(options.bootstrap)
        self._codec = options.codec
        self._placement = RowPlacement(self.routes, options.topic, task)
        self._producer: BatchProducer | None = None
        self.position: RecordPosition | None = None
        """Position of one of the written records."""
        self._runner = asyncio.Runner()

    def __enter__(self) -> TaskWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def begin(self, identity: ProducerIdentity) -> None:
        """Write all following rows with this producer identity."""
        self._producer = BatchProducer(self.routes, identity, self._codec)

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows, and return once all in-sync replicas have acknowledged them."""
        self.run(self._write(rows))

    async def _write(self, rows: pa.RecordBatch) -> None:
        assert self._producer is not None
        placed = await self._placement.place(rows, SystemClock().now_ms())
        offsets = await asyncio.gather(
            *(self._producer.write(*partition, records) for partition, records in placed.items())
        )
        if self.position is None:
            for (topic, partition), offset in zip(placed, offsets, strict=True):
                self.position = RecordPosition(
                    topic, (await self.routes.topic(topic)).id.hex, partition, offset
                )

    async def _close(self) -> None:
        self.routes.close()
