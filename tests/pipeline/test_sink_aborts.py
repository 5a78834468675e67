"""An operator aborts transactions of a streaming query: each row is written once, or an error names the loss."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from deaths import Death, Killed
from sink_helpers import Query, committed, new_topic

from penstock.internal_client.routes import Routes
from penstock.internal_client.transactions import TransactionCalls
from penstock.pipeline.offsets import run
from penstock.pipeline.sink import stream_writer
from penstock.pipeline.sink.decision_log import DecisionLog, SinkDecision
from penstock.pipeline.sink.held_transactions import claim, commit, open_under, take_over
from penstock.pipeline.sink.outcomes import BatchUndone, RowsLost, carry_out
from penstock.pipeline.sink.stream_writer import Overtaken, TaskResult
from penstock.testing.process import BrokerProcess

STRIDE = 1 if os.environ.get("PENSTOCK_ALL_FAULTS") else 3
"""Step between the tested requests: all of them only with PENSTOCK_ALL_FAULTS."""
FIRST, SECOND = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(10)]


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


@pytest.fixture
def query(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    query = Query(bootstrap, topic, monkeypatch)
    query.writer.commit(query.run(0, FIRST), 0)
    return query


async def _abort(transactional_id: str, routes: Routes) -> None:
    await TransactionCalls(routes).abort(transactional_id)


def operator_aborts(bootstrap: str, transactional_ids: Sequence[str]) -> None:
    """Abort as `penstock transaction abort` does."""
    for each in transactional_ids:
        run(bootstrap, partial(_abort, each))


def decided(query: Query, patch: pytest.MonkeyPatch, commits: int = 0) -> list[TaskResult]:
    """Decide batch 1, and let the driver die after it has committed this many of the transactions."""
    messages = query.run(1, SECOND)

    def dying(bootstrap: str, decision: Any, left_open: Any) -> None:
        if commits:
            some = type(decision)(1, decision.winners[:commits], decision.positions[:commits])
            carry_out(bootstrap, some, left_open)
        raise Killed

    with patch.context() as within:
        within.setattr(stream_writer, "carry_out", dying)
        with pytest.raises(Killed):
            query.writer.commit(messages, 1)
    return messages


def restart(query: Query, batch: int = 1) -> None:
    """Run the batch again, as Spark does, and call `abort` on failure."""
    messages = query.run(batch, SECOND)
    try:
        query.writer.commit(messages, batch)
    except Exception:
        query.writer.abort(messages, batch)
        raise


@pytest.mark.parametrize("aborted", [1, 2])
def test_decided_batch_aborted_before_any_commit_is_written_again(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, aborted: int
) -> None:
    decided(query, monkeypatch)
    operator_aborts(bootstrap, query.open_ids[:aborted])
    with pytest.raises(BatchUndone, match=r"of batch 1 were aborted .*start the query again"):
        restart(query)
    assert query.open_ids == []
    assert committed(bootstrap, topic) == sorted(FIRST)
    restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_loss_of_partly_committed_batch_is_an_error_until_accepted(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(query, monkeypatch, commits=1)
    [lost] = query.open_ids
    operator_aborts(bootstrap, [lost])
    for _ in range(2):
        with pytest.raises(
            RowsLost, match=rf"batch 1 is not complete.*{lost} were aborted.*acceptLossOfBatch=1"
        ):
            query.writer.commit(query.run(1, SECOND), 1)
        assert query.open_ids == []
    accepting = Query(bootstrap, topic, monkeypatch, acceptLossOfBatch="1")
    accepting.id = query.id
    with pytest.warns(UserWarning, match="batch 1 is not complete"):
        restart(accepting)
    restart(query, 2)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND[::2] + SECOND)


def test_fenced_transaction_is_not_assumed_committed(
    query: Query, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(query, monkeypatch)
    for name in query.open_ids:
        run(bootstrap, partial(take_over, transactional_id=name))
    with pytest.raises(RowsLost, match=r"0 were committed; the outcome of .* is unknown"):
        restart(query)


def test_claim_of_committed_transactions_id_is_not_an_abort(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late attempt of a task claims the id after the driver has committed, before Spark knows it."""
    decided(query, monkeypatch, commits=2)
    for number in (0, 1):
        prefix = f"spark-sink/{query.id}/{number}-"
        run(bootstrap, partial(claim, prefix=prefix))
    restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_decided_rows_are_committed_if_next_run_has_no_rows(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input was deleted between the two runs of the batch."""
    decided(query, monkeypatch)
    query.writer.commit([query.write(1, 0, [])], 1)
    query.writer.commit(query.run(2, ["c"] * 2), 2)
    assert committed(bootstrap, topic) == sorted([*FIRST, *SECOND, "c", "c"])


def test_transaction_aborted_before_the_decision_leaves_the_batch_undecided(
    query: Query, bootstrap: str, topic: str
) -> None:
    messages = query.run(1, SECOND)
    operator_aborts(bootstrap, query.open_ids[:1])
    with pytest.raises(BatchUndone, match="was aborted while the batch was written"):
        query.writer.commit(messages, 1)
    query.writer.abort(messages, 1)
    restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_fenced_driver_cannot_undo_batch_of_its_successor(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old driver continues after the new one has undone its decision and written the batch again."""
    messages = query.run(1, SECOND)

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(stream_writer, "carry_out", carry_out)
        operator_aborts(bootstrap, query.open_ids[:1])
        with pytest.raises(BatchUndone):
            restart(query)
        restart(query)
        carry_out(*arguments)

    monkeypatch.setattr(stream_writer, "carry_out", late)
    with pytest.raises(Overtaken):
        query.writer.commit(messages, 1)
    restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)


def test_new_driver_sees_commit_of_old_driver_before_undoing(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(query, monkeypatch)
    aborted, kept = query.open_ids
    operator_aborts(bootstrap, [aborted])

    async def then_the_old_one_commits(routes: Any, prefix: str) -> Any:
        found = await open_under(routes, prefix)
        await commit(routes, [each for each in found if each.transactional_id == kept])
        return found

    monkeypatch.setattr(stream_writer, "open_under", then_the_old_one_commits)
    with pytest.raises(RowsLost, match=f"1 were committed; {aborted} were aborted"):
        restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND[1::2])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", [1, 2])
def test_abort_after_death_at_any_request_loses_nothing_silently(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    """The driver dies at a request, and an operator aborts every open transaction, or every second one."""
    outcomes = set()
    for at in itertools.count(1, STRIDE):
        topic = new_topic(bootstrap)
        query = Query(bootstrap, topic, monkeypatch)
        query.writer.commit(query.run(0, FIRST), 0)
        messages = query.run(1, SECOND)
        death = Death(at, is_sent=at % 2 == 0)
        with death.awaited(monkeypatch):
            query.writer.commit(messages, 1)
        operator_aborts(bootstrap, query.open_ids[::share])
        outcome = _until_settled(query)
        outcomes.add(outcome)
        found = committed(bootstrap, topic)
        assert query.open_ids == []
        assert len(set(found)) == len(found), f"rows written twice, death at request {at}"
        is_whole = found == sorted(FIRST + SECOND)
        assert is_whole is (outcome != "lost"), f"{outcome}, death at request {at}"
        if not death.has_come:
            break
    assert outcomes >= {"written", "undone"}


def _until_settled(query: Query) -> str:
    try:
        restart(query)
    except BatchUndone:
        restart(query)
        return "undone"
    except RowsLost:
        return "lost"
    return "written"


def test_decision_of_an_older_version_is_carried_out(
    query: Query, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    winners = tuple(each.transaction for each in query.run(1, SECOND) if each.transaction)
    decisions = DecisionLog(bootstrap, query.id)
    driver, _ = decisions.lead()
    with monkeypatch.context() as patch:
        patch.setattr(
            SinkDecision, "encode", lambda self: json.dumps({"batch": 1, "winners": winners}).encode()
        )
        decisions.record(driver, SinkDecision(1, winners))
    restart(query)
    assert committed(bootstrap, topic) == sorted(FIRST + SECOND)
