"""Streaming sink, `df.writeStream.format("penstock")`: writes each row exactly once.

Each attempt of a task writes in its own held transaction and leaves it open. When all tasks of a batch are done, the
driver records which transactions contain the rows of the batch (`sink.decision_log`), aborts the other open
transactions of the query, and commits the recorded ones (`sink.outcomes`). When Spark runs a batch again after a crash,
there are two cases: if the batch was decided, it is not written again; if not, no row of the first run ever becomes
visible.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.internal_client.transactions import ProducerIdentity
from penstock.pipeline.offsets import run
from penstock.pipeline.sink.batch_writer import check_topic
from penstock.pipeline.sink.decision_log import DecisionLog, SinkDecision
from penstock.pipeline.sink.held_transactions import abort, claim, open_under
from penstock.pipeline.sink.options import SinkOptions, check_schema, parse_sink
from penstock.pipeline.sink.outcomes import BatchUndone, RowsLost, carry_out
from penstock.pipeline.sink.producer import RecordPosition
from penstock.pipeline.sink.task_writer import TaskWriter
from penstock.pipeline.table_store import store_at


class Overtaken(PenstockError):
    """Another run of the same query has recorded a decision after this run began to write its rows."""


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    query: str
    transaction: ProducerIdentity | None = None
    """Held transaction with the rows of the task; None if there were no rows."""
    position: RecordPosition | None = None
    """Position of one of the rows."""
    seen: int = -1
    """Offset of the last decision that the task read before it wrote rows."""
    is_decided: bool = False
    """True if the task had rows, but the batch had already been decided."""


class SinkTask(NamedTuple):
    query: str
    batch: int
    number: int


class SinkStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType) -> SinkStreamWriter:
        """Create a writer. Raises OptionError for invalid options or columns before anything is written."""
        parsed = parse_sink(options)
        check_schema(schema, parsed)
        check_topic(parsed)
        return cls(parsed)

    # --- in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        first = next((rows for rows in iterator if rows.num_rows), None)
        if first is None:
            return TaskResult(task.query)
        # The decision is read before any row is written: the task of a transaction that a driver finds open has then
        # not read the decision which that driver is about to record. It is also read before the id is claimed,
        # because claiming makes the coordinator forget the outcome of a decided transaction.
        last = self._decisions(task.query).last()
        if last.batch >= task.batch:
            for _ in iterator:
                pass
            return TaskResult(task.query, is_decided=True)
        with TaskWriter(self._options, task.number) as writer:
            held = writer.run(claim(writer.routes, f"{_prefix(task.query)}{task.number}-"))
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
        return TaskResult(task.query, held, writer.position, last.offset)

    # --- in the driver

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Decide and commit a batch. A batch without rows is skipped, unless an earlier run, which had rows, has
        decided it.
        """
        written = [each for each in messages if isinstance(each, TaskResult)]
        if not written:
            return
        has_rows = any(each.transaction is not None or each.is_decided for each in written)
        if has_rows or self._decisions(written[0].query).last().batch == batchId:
            self._settle(written[0].query, batchId, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        reported = next((each.query for each in messages if isinstance(each, TaskResult)), None)
        query = reported or _query_of(self._options.checkpoint)
        if query is not None:
            self._settle(query, batchId, None)

    def _settle(self, query: str, batch: int, written: Sequence[TaskResult] | None) -> None:
        """Decide the batch, unless it is already decided or has failed (`written` is None). Then abort all other open
        transactions, and commit the decided ones. Earlier batches are complete, because Spark starts a batch after the
        commit of the previous one.
        """
        decisions, bootstrap = self._decisions(query), self._options.bootstrap
        driver, last = decisions.lead()
        left_open = run(bootstrap, lambda routes: open_under(routes, _prefix(query)))
        decision = last
        if last.batch < batch and written is not None:
            decision = _decide(batch, written, last, left_open)
        decisions.record(driver, decision)
        losers = [each for each in left_open if each not in decision.winners]
        if losers:
            run(bootstrap, lambda routes: abort(routes, losers))
        if decision.batch == batch:
            self._carry_out(decisions, decision, left_open)

    def _carry_out(
        self, decisions: DecisionLog, decision: SinkDecision, left_open: Sequence[ProducerIdentity]
    ) -> None:
        try:
            carry_out(self._options.bootstrap, decision, left_open)
        except BatchUndone:
            driver, newest = decisions.lead()
            if not newest.is_same(decision):
                raise _overtaken(decision.batch) from None
            decisions.record(driver, decision.undone())
            raise
        except RowsLost as error:
            if not decisions.last().is_same(decision):
                raise _overtaken(decision.batch) from None
            if self._options.accepts_loss_of_batch != decision.batch:
                raise
            warnings.warn(str(error), stacklevel=2)

    def _decisions(self, query: str) -> DecisionLog:
        return DecisionLog(self._options.bootstrap, query)


def _decide(
    batch: int, written: Sequence[TaskResult], last: SinkDecision, left_open: Collection[ProducerIdentity]
) -> SinkDecision:
    if any(each.is_decided or (each.transaction and each.seen != last.offset) for each in written):
        raise _overtaken(batch)
    winners = tuple(each.transaction for each in written if each.transaction)
    for each in winners:
        if each not in left_open:
            raise BatchUndone(
                f"the transaction {each.transactional_id} of batch {batch} was aborted while the batch was written. "
                "No row of the batch can be read, and none is lost: start the query again, it writes the batch again"
            )
    return SinkDecision(
        batch, winners, tuple(each.position for each in written if each.transaction and each.position)
    )


def _overtaken(batch: int) -> Overtaken:
    return Overtaken(
        f"another run of the query recorded a decision while batch {batch} was written: "
        "stop the other run and start the query again"
    )


def _query_of(checkpoint: str | None) -> str | None:
    """Query id from the metadata file of the checkpoint, if this machine has the file. Used if no task has returned a
    result.
    """
    if checkpoint is None or not (store := store_at(checkpoint)).has("metadata"):
        return None
    with store.open("metadata") as file:
        query: str = json.loads(file.read())["id"]
    return query


def _prefix(query: str) -> str:
    return f"spark-sink/{query}/"


def _task() -> SinkTask:
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None
    assert batch is not None
    return SinkTask(query, int(batch), context.partitionId())
