"""Tasks and a driver of a real Spark are killed under the streaming sink: a part of `make pipeline-crashes`, for it
starts Spark four times; CI has the same deaths without Spark (`test_sink_deaths.py`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from archive_helpers import digest
from pyspark.sql import SparkSession
from sink_helpers import committed, new_topic
from sink_kills import Plan, Runs, feed
from sink_query import copy

from penstock.pipeline.offsets import run
from penstock.pipeline.sink.held_transactions import open_under
from penstock.testing.process import BrokerProcess

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.skipif(
        not os.environ.get("PENSTOCK_ALL_FAULTS"), reason="takes a minute: make pipeline-crashes"
    ),
]

PRODUCE, END_TXN = 0, 26
ROWS = 500
ATTEMPTS = 4


@pytest.mark.timeout(900)
def test_task_and_driver_are_killed_and_each_row_is_there_once(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    feed(bootstrap, source, range(ROWS))
    runs = Runs(bootstrap, source, target, tmp_path)
    # The task when its first rows are written, the driver when all is decided and one transaction of two is committed.
    plans = [Plan("task", 1, is_sent=True, api=PRODUCE), Plan("driver", 3, api=END_TXN)]
    assert not runs.run(*plans)
    assert runs.deaths() == 2, runs.log_tail()
    copy(spark, bootstrap, source, target, str(runs.checkpoint))
    found = committed(bootstrap, target)
    assert len(found) == ROWS
    assert digest(map(str.encode, found)) == digest(b"%d" % number for number in range(ROWS))


@pytest.mark.timeout(900)
def test_task_that_is_killed_at_each_attempt_leaves_no_transaction_open(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    source, target = new_topic(bootstrap, 1), new_topic(bootstrap)
    feed(bootstrap, source, range(ROWS))
    runs = Runs(bootstrap, source, target, tmp_path)
    assert not runs.run(*[Plan("task", 1, is_sent=True, api=PRODUCE)] * ATTEMPTS)
    assert runs.deaths() == ATTEMPTS, runs.log_tail()
    query = json.loads((runs.checkpoint / "metadata").read_text())["id"]
    assert run(bootstrap, lambda routes: open_under(routes, f"spark-sink/{query}/")) == []
    copy(spark, bootstrap, source, target, str(runs.checkpoint))
    assert len(committed(bootstrap, target)) == ROWS
