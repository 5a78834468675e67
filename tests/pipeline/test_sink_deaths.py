"""Driver and task of the streaming sink die at each request they make, and Spark runs the batch again."""

from __future__ import annotations

import itertools
import os

import pytest
from deaths import Death
from sink_helpers import Query, committed, new_topic, rows_of

from penstock.testing.process import BrokerProcess

pytestmark = pytest.mark.process

FIRST, SECOND = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(10)]
STRIDE = 1 if os.environ.get("PENSTOCK_ALL_FAULTS") else 5
"""Not every step when there is little time."""


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
