"""Driver, task and broker of the streaming sink die at each request, and Spark runs the batch again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from deaths import Death, interrupted
from sink_helpers import Query, committed, new_topic, rows_of

from penstock.errors import PenstockError
from penstock.testing.process import BrokerProcess
from support.cluster_processes import ClusterProcesses

FIRST, SECOND = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(10)]
WITH_ALL = bool(os.environ.get("PENSTOCK_ALL_FAULTS"))
STRIDE = 1 if WITH_ALL else 8
"""Step between the tested requests: all of them only with PENSTOCK_ALL_FAULTS."""


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("what", ["commit", "abort", "task"])
def test_death_at_each_request_loses_nothing_and_writes_nothing_twice(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, what: str, is_sent: bool
) -> None:
    for at in itertools.count(1, STRIDE):
        topic = new_topic(bootstrap)
        query = Query(bootstrap, topic, monkeypatch)
        query.writer.commit(query.run(0, FIRST), 0)
        death = Death(at, is_sent=is_sent)
        if what == "task":
            with death.awaited(monkeypatch):
                query.write(1, 0, [rows_of(SECOND[:3]), rows_of(SECOND[3:])])
        else:
            messages = query.run(1, SECOND)
            with death.awaited(monkeypatch):
                (query.writer.commit if what == "commit" else query.writer.abort)(messages, 1)
        query.writer.commit(query.run(1, SECOND), 1)
        assert committed(bootstrap, topic) == sorted(FIRST + SECOND), f"death at request {at}"
        assert query.open_ids == [], f"death at request {at}"
        if not death.has_come:
            assert at > STRIDE, "it has to die at some requests"
            break


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.timeout(600)
def test_broker_killed_at_any_request_costs_at_most_a_retry_of_the_batch(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker.bootstrap)
    query = Query(broker.bootstrap, topic, monkeypatch)
    wanted: list[str] = []

    def restart() -> None:
        broker.kill()
        broker.start()

    for batch, at in enumerate(range(1, 50, 3 * STRIDE)):
        values = [f"{batch} {number}" for number in range(10)]
        wanted += values
        with interrupted(at, restart, monkeypatch):
            try:
                query.writer.commit(query.run(batch, values), batch)
            except PenstockError:
                query.writer.commit(query.run(batch, values), batch)
    assert committed(broker.bootstrap, topic) == sorted(wanted)
    assert query.open_ids == []


@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.timeout(600)
@pytest.mark.skipif(not WITH_ALL, reason="a cluster takes a while: make pipeline-crashes")
def test_cluster_of_three_survives_broker_killed_at_any_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ClusterProcesses(tmp_path)
    wanted = ["first", "second"]
    try:
        cluster.start()
        topic = new_topic(cluster.bootstrap, 2, 3)
        query = Query(cluster.bootstrap, topic, monkeypatch)
        query.writer.commit(query.run(0, wanted), 0)
        for batch, at in enumerate(range(1, 60, 6), 1):
            values = [f"{batch} {number}" for number in range(10)]
            wanted += values
            victims = [1 + batch % 3]
            with interrupted(at, partial(cluster.kill_brokers, victims), monkeypatch):
                query.writer.commit(query.run(batch, values), batch)
            cluster.start_brokers(each for each in victims if each not in cluster.running)
            cluster.wait_until_healed()
        assert committed(cluster.bootstrap, topic) == sorted(wanted)
        assert query.open_ids == []
    finally:
        cluster.close()
