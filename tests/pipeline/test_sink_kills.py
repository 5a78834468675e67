"""Killed tasks and driver of a real Spark under the streaming sink. Part of `make pipeline-crashes` only,
because it starts Spark four times; `test_sink_deaths.py` has the same deaths without Spark.
"""

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

pytestmark = pytest.mark.skipif(
    not os.environ.get("PENSTOCK_ALL_FAULTS"), reason="takes a minute: make pipeline-crashes"
)

PRODUCE, END_TXN = 0, 26
ROWS = 500
ATTEMPTS = 4


@pytest.mark.timeout(900)
def test_each_row_is_written_once_after_task_and_driver_deaths(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    feed(bootstrap, source, range(ROWS))
    runs = Runs(bootstrap, source, target, tmp_path)
    # The task dies at its first rows, the driver after the decision with one of two transactions committed.
    plans = [Plan("task", 1, is_sent=True, api=PRODUCE), Plan("driver", 3, api=END_TXN)]
    assert not runs.run(*plans)
    assert runs.deaths() == 2, runs.log_tail()
    copy(spark, bootstrap, source, target, str(runs.checkpoint))
    found = committed(bootstrap, target)
    assert len(found) == ROWS
    assert digest(map(str.encode, found)) == digest(b"%d" % number for number in range(ROWS))


@pytest.mark.timeout(900)
def test_task_killed_at_each_attempt_leaves_no_open_transaction(
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
