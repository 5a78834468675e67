"""The model of transactions: which responses and reads it accepts, and which not."""

from __future__ import annotations

import pytest

from simulation.models.history import InvariantViolated, Outcome
from simulation.models.offset_model import ShownOffset
from simulation.models.transaction_model import Instance, ModelTransaction, TransactionModel
from simulation.transactions.transaction_client import Producer

HERE, THERE = ("ledger", 0), ("ledger", 1)


@pytest.fixture
def model() -> TransactionModel:
    return TransactionModel()


@pytest.fixture
def instance(model: TransactionModel) -> Instance:
    return model.on_producer("id", "first", Producer(1, 0))


@pytest.fixture
def transaction(model: TransactionModel, instance: Instance) -> ModelTransaction:
    transaction = model.begin(instance)
    model.on_send(HERE, b"a", 1, transaction, "lane")
    model.on_send(THERE, b"b", 2, transaction, "lane")
    model.on_ack(b"a", 0)
    model.on_ack(b"b", 0)
    return transaction


def commit(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_commit_sent(transaction)
    model.on_end(transaction, commit=True)


def broken(invariant: str) -> pytest.RaisesExc[InvariantViolated]:
    return pytest.raises(InvariantViolated, match=f"^{invariant}: ")


def test_complete_transaction_is_no_violation(model: TransactionModel, transaction: ModelTransaction) -> None:
    commit(model, transaction)
    model.check_partition(HERE, [(0, b"a")], [(0, b"a")])
    model.check_atomic({HERE: [(0, b"a")], THERE: [(0, b"b")]})


def test_half_a_transaction_is_torn(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_commit_sent(transaction)
    with broken("I7"):
        model.check_atomic({HERE: [(0, b"a")], THERE: []})


def test_committed_transaction_that_is_not_shown_is_torn(
    model: TransactionModel, transaction: ModelTransaction
) -> None:
    commit(model, transaction)
    with broken("I7"):
        model.check_atomic({HERE: [], THERE: []})


def test_aborted_transaction_is_not_shown(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_end(transaction, commit=False)
    model.check_atomic({HERE: [], THERE: []})
    with broken("I6"):
        model.on_committed(HERE, 0, b"a")


def test_open_transaction_is_not_shown(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_uncommitted(HERE, 0, b"a")
    with broken("I6"):
        model.on_committed(HERE, 0, b"a")


def test_shown_transaction_cannot_be_aborted(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_commit_sent(transaction)
    model.on_committed(HERE, 0, b"a")
    assert transaction.outcome is Outcome.OK
    with broken("I7"):
        model.on_refusal(transaction)


def test_offsets_of_an_aborted_transaction_do_not_count(
    model: TransactionModel, transaction: ModelTransaction
) -> None:
    model.on_progress(transaction, 5, was_fenced=False)
    model.on_end(transaction, commit=False)
    with broken("I6"):
        model.on_offset("group", ShownOffset(5, transaction.name), least=0)


def test_committed_offsets_do_not_decrease(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_progress(transaction, 5, was_fenced=False)
    commit(model, transaction)
    model.on_offset("group", ShownOffset(5, transaction.name), least=5)
    with broken("I12"):
        model.on_offset("group", None, least=5)


def test_epoch_is_given_once(model: TransactionModel, instance: Instance) -> None:
    with broken("T29"):
        model.on_producer("id", "second", instance.producer)


def test_fenced_producer_commits_nothing(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_producer("id", "second", Producer(1, 1))
    model.on_commit_sent(transaction)
    with broken("I7"):
        model.on_end(transaction, commit=True)


def test_fenced_producer_writes_nothing(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_producer("id", "second", Producer(1, 1))
    model.on_send(HERE, b"c", 3, transaction, "lane")
    with broken("T29"):
        model.on_ack(b"c", 1)
    with broken("T29"):
        model.on_uncommitted(HERE, 1, b"c")


def test_commit_sent_before_the_successor_came_may_count(
    model: TransactionModel, transaction: ModelTransaction
) -> None:
    model.on_commit_sent(transaction)
    model.on_producer("id", "second", Producer(1, 1))
    model.on_end(transaction, commit=True)
    assert transaction.outcome is Outcome.OK


def test_acknowledged_record_stays(model: TransactionModel, transaction: ModelTransaction) -> None:
    with broken("I1"):
        model.check_partition(HERE, [], [])


def test_record_is_stored_once(model: TransactionModel, transaction: ModelTransaction) -> None:
    with broken("I2"):
        model.on_uncommitted(HERE, 1, b"a")


def test_records_keep_their_order(model: TransactionModel, transaction: ModelTransaction) -> None:
    model.on_send(HERE, b"c", 3, transaction, "lane")
    commit(model, transaction)
    model.on_ack(b"c", 1)
    model.check_partition(HERE, [(0, b"a"), (1, b"c")], [(0, b"a"), (1, b"c")])
    with broken("I4"):
        model.check_partition(HERE, [(1, b"c"), (0, b"a")], [])


def test_records_outside_of_transactions_are_shown(model: TransactionModel) -> None:
    model.on_send(HERE, b"plain", 0, None, "plain")
    model.on_ack(b"plain", 0)
    with broken("I6"):
        model.check_partition(HERE, [(0, b"plain")], [])
