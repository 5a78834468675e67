"""Targets of a micro-batch: a topic and a Delta table, which both store a batch exactly once, and a chart of the
table.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.clock import SystemClock
from penstock.declared.definition import PipelineDefinition
from penstock.pipeline.charts import draw_table
from penstock.pipeline.running.transforming import (
    as_records,
    check_outputs,
    good_rows,
    is_per_batch,
    transformed,
)
from penstock.pipeline.sink.stream_writer import SinkStreamWriter
from penstock.pipeline.table_append import append
from penstock.pipeline.table_store import store_at


class BatchOutputs:
    """Writer of the batches of one query. Spark calls it again with a batch whose first run failed."""

    def __init__(
        self, bootstrap: str, definition: PipelineDefinition, checkpoint: str, last_batch: int | None
    ) -> None:
        self._bootstrap = bootstrap
        self._definition = definition
        self._checkpoint = checkpoint
        self.rows = 0
        """Rows written since the start of the query."""
        self.last_batch = last_batch
        """Number of the last batch with rows that was committed to the table, in this run or an earlier one; None if
        there is none.
        """
        self.busy_since_ms: int | None = None
        """Start time of the batch in progress; None between batches."""

    def write(self, batch: DataFrame, number: int) -> None:
        self.busy_since_ms = SystemClock().now_ms()
        self._write(batch, number)
        self.busy_since_ms = None

    def _write(self, batch: DataFrame, number: int) -> None:
        target = self._definition.target
        rows = transformed(good_rows(batch), self._definition) if is_per_batch(self._definition) else batch
        check_outputs(rows, self._definition)
        is_shared = target.topic is not None and target.table is not None
        if is_shared:
            rows = rows.persist()
        try:
            written = 0
            if target.topic is not None:
                written = self._to_topic(rows, target.topic, number)
            if target.table is not None:
                application = f"penstock-pipeline/{_query_id(batch)}"
                store = store_at(target.table)
                written = append(rows, store, application, number, last_batch=self.last_batch)
                self.last_batch = number if written else self.last_batch
            self.rows += written
        finally:
            if is_shared:
                rows.unpersist()
        if target.chart is not None and target.table is not None and written:
            draw_table(store_at(target.table), os.path.abspath(target.chart))

    def _to_topic(self, rows: DataFrame, topic: str, number: int) -> int:
        records = as_records(rows, topic)
        options = {"bootstrap": self._bootstrap, "topic": topic, "checkpointLocation": self._checkpoint}
        writer = SinkStreamWriter.checked(options, records.schema)
        counted = records.sparkSession.sparkContext.accumulator(0)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            def count() -> Iterator[pa.RecordBatch]:
                for each in batches:
                    counted.add(each.num_rows)
                    yield each

            message = pickle.dumps(writer.write(count()))
            yield pa.RecordBatch.from_pydict({"message": pa.array([message], pa.binary())})

        try:
            found = records.mapInArrow(write, "message binary").collect()
        except BaseException:
            writer.abort([], number)
            raise
        writer.commit([pickle.loads(bytes(each.message)) for each in found], number)  # noqa: S301 - from own tasks
        return int(counted.value)


def _query_id(batch: DataFrame) -> str:
    """Id of the streaming query, which Spark stores in its checkpoint."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None
    return str(found)
