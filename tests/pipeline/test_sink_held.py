"""Streaming sink step by step, without Spark: after any crash and retry, each row is read once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaException, Producer
from deaths import Killed
from pyspark.sql.types import StringType, StructField, StructType
from sink_helpers import Query, committed, new_topic, rows_of

from penstock.internal_client.partitioner import partition_for
from penstock.pipeline.offsets import ClusterUnreachable, run
from penstock.pipeline.sink import decision_log
from penstock.pipeline.sink.decision_log import DECISIONS_TOPIC, DecisionLog, SinkDecision
from penstock.pipeline.sink.held_transactions import commit
from penstock.pipeline.sink.producer import NotWritten
from penstock.pipeline.sink.stream_writer import Overtaken, SinkStreamWriter
from penstock.testing.process import BrokerProcess

FIRST, SECOND = [f"a{n}" for n in range(20)], [f"b{n}" for n in range(20)]


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


@pytest.fixture
def query(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(bootstrap, topic, monkeypatch)


def test_batches_are_readable_after_commit(query: Query, bootstrap: str, topic: str) -> None:
    messages = query.run(0, FIRST)
    assert len(query.open_ids) == 2
    query.writer.commit(messages, 0)
    assert query.open_ids == []
    assert committed(bootstrap, topic) == sorted(FIRST)
    query.writer.commit(query.run(1, SECOND), 1)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_decided_batch_that_is_run_again_writes_nothing(query: Query, bootstrap: str, topic: str) -> None:
    query.writer.commit(query.run(0, FIRST), 0)
    messages = query.run(0, FIRST)
    assert all(each.is_decided for each in messages)
    query.writer.commit(messages, 0)
    assert committed(bootstrap, topic) == sorted(FIRST)


def test_abandoned_attempt_is_aborted(query: Query, bootstrap: str, topic: str) -> None:
    query.write(0, 0, [rows_of(FIRST)])
    query.write(0, 0, [rows_of(FIRST)])
    query.writer.commit(query.run(0, FIRST), 0)
    assert query.open_ids == []
    assert committed(bootstrap, topic) == sorted(FIRST)


def test_failed_batch_leaves_nothing_and_can_be_run_again(query: Query, bootstrap: str, topic: str) -> None:
    query.writer.abort([query.write(0, 0, [rows_of(FIRST)]), None], 0)
    assert query.open_ids == []
    assert committed(bootstrap, topic) == []
    query.writer.commit(query.run(0, FIRST), 0)
    assert committed(bootstrap, topic) == sorted(FIRST)


def test_batch_without_task_results_is_aborted_by_checkpoint(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = Query(bootstrap, topic, monkeypatch, checkpointLocation=tmp_path.as_uri())
    (tmp_path / "metadata").write_text(json.dumps({"id": query.id}))
    query.write(0, 0, [rows_of(FIRST)])
    assert len(query.open_ids) == 1
    query.writer.abort([None], 0)
    assert query.open_ids == []


def test_failed_task_aborts_its_transaction(query: Query, bootstrap: str, topic: str) -> None:
    def broken() -> object:
        yield rows_of(FIRST)
        raise ValueError("the input broke off")

    with pytest.raises(ValueError, match="broke off"):
        query.write(0, 0, broken())  # type: ignore[arg-type]
    assert query.open_ids == []


def test_too_large_row_fails_and_leaves_no_open_transaction(query: Query, topic: str) -> None:
    rows = rows_of(["small", "x" * 3_000_000])
    with pytest.raises(NotWritten, match=rf"cannot write to {topic}-\d: message_too_large"):
        query.write(0, 0, [rows])
    assert query.open_ids == []


def test_unreachable_cluster_fails_before_anything_is_written() -> None:
    schema = StructType([StructField("value", StringType())])
    options = {"bootstrap": "127.0.0.1:1", "topic": "t"}
    with pytest.raises(ClusterUnreachable, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        SinkStreamWriter.checked(options, schema)


def test_failure_after_decision_aborts_no_decided_transaction(
    query: Query, bootstrap: str, topic: str
) -> None:
    messages = query.run(0, FIRST)
    query.writer.commit(messages, 0)
    query.writer.abort([*messages], 0)
    assert committed(bootstrap, topic) == sorted(FIRST)


def test_batch_without_rows_decides_nothing(query: Query, bootstrap: str) -> None:
    messages = [query.write(0, 0, [rows_of([])]), query.write(0, 1, [])]
    assert all(each.transaction is None for each in messages)
    query.writer.commit(messages, 0)
    assert DecisionLog(bootstrap, query.id).last() == SinkDecision()


def test_tasks_of_fenced_driver_do_not_count(query: Query, bootstrap: str, topic: str) -> None:
    of_the_old = query.run(0, FIRST)
    of_the_new = query.run(0, FIRST)
    query.writer.commit(of_the_new, 0)
    query.writer.commit(of_the_old, 0)
    assert committed(bootstrap, topic) == sorted(FIRST)
    late = query.run(1, SECOND)
    query.writer.commit(query.run(0, FIRST), 0)
    with pytest.raises(Overtaken, match="start the query again"):
        query.writer.commit(late, 1)
    query.writer.commit(query.run(1, SECOND), 1)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_driver_waits_for_decision_hidden_by_another_query(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.writer.commit(query.run(0, FIRST), 0)
    log = DecisionLog(bootstrap, query.id)
    winners = [each.transaction for each in query.run(1, SECOND) if each.transaction]
    driver, _ = log.lead()
    partition = partition_for(query.id.encode(), 8)
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": "other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(DECISIONS_TOPIC, b"", b"other", partition)
    assert other.flush(30) == 0
    with monkeypatch.context() as patch:
        # The driver loses contact after its decision is stored, before it is readable.
        patch.setattr(decision_log, "_until_readable", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            log.record(driver, SinkDecision(1, tuple(winners)))
    until_readable = decision_log._until_readable

    async def waited_for(*arguments: Any) -> None:
        with suppress(KafkaException):  # the transaction has ended already
            other.abort_transaction(30)
        await until_readable(*arguments)

    monkeypatch.setattr(decision_log, "_until_readable", waited_for)
    query.writer.commit(query.run(1, SECOND), 1)
    # The old driver is alive and continues.
    run(bootstrap, lambda routes: commit(routes, winners))
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_transactional_ids_are_reused(query: Query) -> None:
    used = set()
    for batch in range(4):
        messages = query.run(batch, FIRST)
        used |= {each.transaction.transactional_id for each in messages if each.transaction}
        query.writer.commit(messages, batch)
    assert len(used) == 2
