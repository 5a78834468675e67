"""One activation of a declared pipeline in a Spark session: its queries, or its archiver.

`start` returns when the queries run. `wait` returns when a run has reached the end that the topics had at its start, or
raises the error that stopped it. Each pipeline has its own session on the shared Spark context, so that temporary views
do not collide.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.clock import SystemClock
from penstock.declared.definition import PipelineDefinition
from penstock.errors import PenstockError
from penstock.pipeline.archive.archiver import ArchiveJob, Archiver
from penstock.pipeline.archive.maintenance import maintain
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.offsets import topics_of
from penstock.pipeline.options import parse
from penstock.pipeline.progress_metrics import total_behind_latest
from penstock.pipeline.running.outputs import BatchOutputs
from penstock.pipeline.running.transforming import (
    check_outputs,
    dead_letters,
    good_rows,
    is_per_batch,
    source_rows,
    transformed,
)
from penstock.pipeline.source import PenstockSource

_CONTINUOUS_TRIGGER = "1 second"
_ARCHIVE_PAUSE_SECONDS = 2.0
_OBSERVED = "source"
_WAIT_SECONDS = 1
_MISFIT = re.compile(
    r"\[(STATE_STORE_(?:KEY|VALUE|SCHEMA|COLUMN|INVALID)\w*|STREAMING_STATEFUL_OPERATOR\w*|CANNOT_LOAD_STATE_STORE\S*)\]"
)
"""Spark's error conditions for a query that does not match the state stored in its checkpoint."""


class RunFailed(PenstockError):
    """The pipeline cannot run with its current definition or checkpoint."""


class RunCancelled(PenstockError):
    """The supervisor stopped a run before its end."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    rows: int = 0
    """Rows written to the target since the start of the activation."""
    bytes: int | None = None
    """Number of bytes: of the keys and values that were read, or for an archive of the files that were written."""
    lag_records: int | None = None
    lag_seconds: float | None = None
    """Age in seconds of the newest processed record; 0 if the run has processed all records."""
    batch_ms: int | None = None
    """Duration of the last batch."""
    succeeded_ms: int | None = None
    """Time at which the last batch was written, or at which the last check found no new records."""
    busy_since_ms: int | None = None
    """Start time of the batch in progress; None between batches."""
    last_batch: int | None = None
    """Number of the last batch with rows that was committed to the table; None if there is none."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Brokers and checkpoint directory of an activation."""

    bootstrap: str
    checkpoint: str
    last_batch: int | None = None
    """Number of the last batch with rows that earlier activations committed to the table; None if there is none."""


class PipelineRun(Protocol):
    def start(self, spark: SparkSession, *, once: bool) -> None: ...

    def wait(self, is_cancelled: threading.Event) -> None: ...

    def stop(self) -> None: ...

    def figures(self) -> RunFigures: ...


def run_of(definition: PipelineDefinition, place: RunPlace, warn: Callable[[str], None]) -> PipelineRun:
    if definition.target.archive is not None:
        return ArchiveRun(definition, place, warn)
    return StreamRun(definition, place)


class StreamRun:
    def __init__(self, definition: PipelineDefinition, place: RunPlace) -> None:
        self._definition = definition
        self._place = place
        self._queries: list[StreamingQuery] = []
        self._outputs = BatchOutputs(place.bootstrap, definition, self._checkpoint("rows"), place.last_batch)
        self._figures = RunFigures()
        self._next_batch = 0
        self._newest_ms: int | None = None

    def start(self, spark: SparkSession, *, once: bool) -> None:
        check_targets(self._place.bootstrap, self._definition)
        session = spark.newSession()
        # Spark looks up installed data sources once per Java process. If that lookup timed out on a busy machine, the
        # failure would last until the process ends. A sink is looked up in the active session of the thread.
        for each in (spark, session):
            each.dataSource.register(PenstockSource)
        rows = _observed(source_rows(session, self._place.bootstrap, self._definition))
        result = rows
        if not is_per_batch(self._definition):
            result = transformed(good_rows(rows), self._definition)
            check_outputs(result, self._definition)
        writer = (
            result.writeStream.queryName(f"{self._definition.name}")
            .option("checkpointLocation", self._checkpoint("rows"))
            .foreachBatch(self._outputs.write)
        )
        self._queries.append(self._started(writer, once))
        if self._definition.dead_letter is not None:
            bad = dead_letters(
                source_rows(session, self._place.bootstrap, self._definition), self._definition.name
            )
            self._queries.append(
                self._started(
                    bad.writeStream.queryName(f"{self._definition.name}-dead-letters")
                    .format("penstock")
                    .option("bootstrap", self._place.bootstrap)
                    .option("topic", self._definition.dead_letter)
                    .option("checkpointLocation", self._checkpoint("dead-letters")),
                    once,
                )
            )

    def wait(self, is_cancelled: threading.Event) -> None:
        """Return when all queries have ended by themselves. Raises the error of the first query that failed, or
        RunCancelled when the event is set.
        """
        while not is_cancelled.is_set():
            active = [each for each in self._queries if each.isActive]
            for each in self._queries:
                if (problem := each.exception()) is not None:
                    raise self._explained(problem)
            if not active:
                return
            try:
                active[0].awaitTermination(_WAIT_SECONDS)
            except StreamingQueryException as problem:
                raise self._explained(problem) from problem
        raise RunCancelled("stopped")

    def _explained(self, problem: Exception) -> Exception:
        """Return RunFailed if the definition does not match the state in the checkpoint, else the error itself."""
        if _MISFIT.search(str(problem)) is None:
            return problem
        return RunFailed(
            f"the definition does not match its checkpoint at {self._place.checkpoint}: undo the change, or delete the "
            "pipeline and apply it again, which reads its source from the beginning. Spark says: "
            f"{_inner_cause(problem)}"
        )

    def stop(self) -> None:
        for each in self._queries:
            each.stop()

    def figures(self) -> RunFigures:
        for each in self._queries[:1]:
            for progress in each.recentProgress:
                self._count(progress)
        outputs = self._outputs
        return replace(
            self._figures,
            rows=outputs.rows,
            busy_since_ms=outputs.busy_since_ms,
            last_batch=outputs.last_batch,
        )

    def _count(self, progress: Any) -> None:
        """Add the statistics of a batch, unless this batch is counted already."""
        began = datetime.fromisoformat(progress["timestamp"])
        succeeded_ms = int(began.timestamp() * 1000) + int(progress["batchDuration"])
        self._figures = replace(self._figures, succeeded_ms=succeeded_ms)
        if progress["batchId"] < self._next_batch:
            return
        self._next_batch = progress["batchId"] + 1
        observed = progress["observedMetrics"].get(_OBSERVED)
        lag, newest = total_behind_latest(progress["sources"][0]), observed and observed["newest_ms"]
        if newest:
            self._newest_ms = newest
        behind_ms = SystemClock().now_ms() - self._newest_ms if self._newest_ms else None
        lag_seconds = 0.0 if lag == 0 else None if behind_ms is None else round(behind_ms / 1000, 1)
        counted = (self._figures.bytes or 0) + ((observed and observed["bytes"]) or 0)
        self._figures = RunFigures(0, counted, lag, lag_seconds, progress["batchDuration"], succeeded_ms)

    def _started(self, writer: Any, once: bool) -> StreamingQuery:
        trigger = {"availableNow": True} if once else {"processingTime": _CONTINUOUS_TRIGGER}
        query: StreamingQuery = writer.trigger(**trigger).start()
        return query

    def _checkpoint(self, part: str) -> str:
        return f"{self._place.checkpoint}/{part}"


class ArchiveRun:
    def __init__(self, definition: PipelineDefinition, place: RunPlace, warn: Callable[[str], None]) -> None:
        source = definition.source
        chosen = (
            {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
        )
        options = parse({"bootstrap": place.bootstrap, **chosen})
        self._table = ArchiveTable.at(definition.target.archive or "")
        self._job = ArchiveJob(options, self._table, schema=definition.schema)
        self._keep_ms = definition.target.keep_ms
        self._warn = warn
        self._spark: SparkSession | None = None
        self._is_once = True
        self._rows = self._bytes = 0
        self._lag: int | None = None
        self._succeeded_ms: int | None = None
        self._busy_since_ms: int | None = None

    def start(self, spark: SparkSession, *, once: bool) -> None:
        self._spark, self._is_once = spark, once

    def wait(self, is_cancelled: threading.Event) -> None:
        spark = self._spark
        assert spark is not None
        while not is_cancelled.is_set():
            before, bytes_before = self._rows, self._bytes
            self._busy_since_ms = SystemClock().now_ms()
            for done in Archiver(self._job, lambda: spark, self._warn).run():
                self._rows, self._lag = before + done.rows, done.offsets_left
                self._bytes = bytes_before + done.bytes
                if is_cancelled.is_set():
                    raise RunCancelled("stopped")
            maintain(self._table, lambda: spark, self._expires_before())
            self._succeeded_ms, self._busy_since_ms = SystemClock().now_ms(), None
            if self._is_once:
                return
            is_cancelled.wait(_ARCHIVE_PAUSE_SECONDS)
        raise RunCancelled("stopped")

    def stop(self) -> None:
        """Do nothing: a round is committed as a whole, or not at all."""

    def figures(self) -> RunFigures:
        return RunFigures(
            self._rows,
            self._bytes,
            self._lag,
            0.0 if self._lag == 0 else None,
            succeeded_ms=self._succeeded_ms,
            busy_since_ms=self._busy_since_ms,
        )

    def _expires_before(self) -> Any:
        if self._keep_ms is None:
            return None
        today = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()
        return today - timedelta(milliseconds=self._keep_ms)


def _inner_cause(problem: Exception) -> str:
    """Spark's reason in one line: its message from the error condition on."""
    found = _MISFIT.search(str(problem))
    text = str(problem)[found.start() :] if found else str(problem)
    return " ".join(text.split())[:300]


def check_targets(bootstrap: str, definition: PipelineDefinition) -> None:
    """Raise an error for a topic that does not exist, before a query starts."""
    if definition.source.topics and definition.source.archive is None:
        topics_of(parse({"bootstrap": bootstrap, "subscribe": ",".join(definition.source.topics)}))
    for topic in (definition.target.topic, definition.dead_letter):
        if topic is not None:
            topics_of(parse({"bootstrap": bootstrap, "subscribe": topic}))


def checkpoint_of(root: str, name: str, identity: str) -> str:
    """Directory of the checkpoints of one pipeline, below the checkpoint directory of all pipelines."""
    place = f"{name}-{identity}"
    return f"{root.rstrip('/')}/{place}" if "://" in root else os.path.join(os.path.abspath(root), place)


def _observed(rows: DataFrame) -> DataFrame:
    """Have Spark count bytes and find the newest timestamp, for the progress reports of the query."""
    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    newest = f.max(f.unix_millis("timestamp"))
    return rows.observe(_OBSERVED, f.sum(size.cast("long")).alias("bytes"), newest.alias("newest_ms"))
