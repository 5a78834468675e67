"""Rows of a stream into topics, each once: `df.writeStream.format("penstock")`.

Each attempt of a task writes in a held transaction of its own and leaves it open. When all tasks of a batch are done
the driver records which transactions are its rows (`sink_decisions`), then commits those, then aborts what else it had
found open. So a batch that Spark runs again, after a crash of whatever, is found decided and written no more, or was
not, and nothing of the first time is ever read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.net.routes import Routes
from penstock.pipeline.archive_store import store_at
from penstock.pipeline.held import abort, claim, commit, open_under
from penstock.pipeline.offsets import run
from penstock.pipeline.sink import check_topic
from penstock.pipeline.sink_decisions import Decision, Decisions
from penstock.pipeline.sink_options import SinkOptions, check_schema, parse_sink
from penstock.pipeline.sink_producer import Identity
from penstock.pipeline.sink_task import TaskWriter


class Overtaken(PenstockError):
    """Another run of the same query has decided something since the rows were written."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    query: str
    transaction: Identity | None = None
    """With rows, if there were any."""
    seen: int = -1
    """The offset of the decision that was the last when they were written."""
    is_decided: bool = False
    """There were rows, and the batch had been decided before."""


class Task(NamedTuple):
    query: str
    batch: int
    number: int


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType) -> StreamWriter:
        """OptionError for what cannot be written, before anything is."""
        parsed = parse_sink(options)
        check_schema(schema, parsed)
        check_topic(parsed)
        return cls(parsed)

    # --- in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        first = next((rows for rows in iterator if rows.num_rows), None)
        if first is None:
            return Written(task.query)
        with TaskWriter(self._options, task.number) as writer:
            held = writer.run(claim(writer.routes, f"{_prefix(task.query)}{task.number}-"))
            # Before any row: whatever a driver finds open has not seen what that one is about to decide.
            last = self._decisions(task.query).last()
            if last.batch >= task.batch:
                for _ in iterator:
                    pass
                return Written(task.query, is_decided=True)
            writer.begin(held)
            try:
                writer.write(first)
                for rows in iterator:
                    if rows.num_rows:
                        writer.write(rows)
            except BaseException:
                with suppress(PenstockError, OSError):
                    writer.run(abort(writer.routes, [held]))
                raise
        return Written(task.query, held, last.offset)

    # --- in the driver

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [each for each in messages if isinstance(each, Written)]
        if any(each.transaction is not None or each.is_decided for each in written):
            self._settle(written[0].query, batchId, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        told = next((each.query for each in messages if isinstance(each, Written)), None)
        query = told or _query_of(self._options.checkpoint)
        if query is not None:
            self._settle(query, batchId, None)

    def _settle(self, query: str, batch: int, written: Sequence[Written] | None) -> None:
        """Decide the batch, unless it is decided or has failed; make what was decided come true, and nothing else."""
        decisions = self._decisions(query)
        driver, last = decisions.lead()
        left_open = run(self._options.bootstrap, lambda routes: open_under(routes, _prefix(query)))
        decision = last
        if last.batch < batch and written is not None:
            decision = _decide(batch, written, last)
        decisions.record(driver, decision)
        winners = decision.winners if decision.batch == batch else ()
        losers = [each for each in left_open if each not in decision.winners]

        async def end(routes: Routes) -> None:
            await commit(routes, winners)
            await abort(routes, losers)

        run(self._options.bootstrap, end)

    def _decisions(self, query: str) -> Decisions:
        return Decisions(self._options.bootstrap, query)


def _decide(batch: int, written: Sequence[Written], last: Decision) -> Decision:
    if any(each.is_decided or (each.transaction and each.seen != last.offset) for each in written):
        raise Overtaken(f"another run of the query went on while batch {batch} was written: start it again")
    return Decision(batch, tuple(each.transaction for each in written if each.transaction))


def _query_of(checkpoint: str | None) -> str | None:
    """As Spark has noted it, where this machine has the file: for a batch of which no task has come back."""
    if checkpoint is None or not (store := store_at(checkpoint)).has("metadata"):
        return None
    with store.open("metadata") as file:
        query: str = json.loads(file.read())["id"]
    return query


def _prefix(query: str) -> str:
    return f"spark-sink/{query}/"


def _task() -> Task:
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None
    assert batch is not None
    return Task(query, int(batch), context.partitionId())
