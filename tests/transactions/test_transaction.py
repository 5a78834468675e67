"""The state of a transactional id as a value: allowed requests and their results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.transactions.transaction import (
    LAST_EPOCH_OF_CLIENTS,
    MAX_EPOCH,
    NOBODY,
    VERSION_1,
    VERSION_2,
    Identity,
    Transaction,
    TransactionState,
    begin,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FRESH = ProducerId(99)
State = TransactionState


def producer(epoch: int, producer_id: int = 7) -> Identity:
    return Identity(ProducerId(producer_id), ProducerEpoch(epoch))


def empty(epoch: int = 0) -> Transaction:
    return replace(begin(ProducerId(7), 60_000, False, 1_000), producer=producer(epoch))


def ongoing(epoch: int = 0, version: int = VERSION_1) -> Transaction:
    return empty(epoch).with_partitions(producer(epoch), [P0], version, 2_000)


def ended(version: int, *, commit: bool = True, epoch: int = 0) -> Transaction:
    return ongoing(epoch, version).ended(producer(epoch), commit, version, FRESH, 3_000)


def init(transaction: Transaction, asking: Identity = NOBODY) -> Transaction:
    return transaction.initialised(asking, 60_000, False, FRESH, 5_000)


def code_of(call: object) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def test_state_names_are_those_of_kafka_tools() -> None:
    assert [state.title for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# --- InitProducerId


def test_init_producer_id_without_an_identity_fences_all_earlier_producers() -> None:
    fenced = init(empty())
    assert fenced.producer == producer(1)
    assert code_of(lambda: fenced.with_partitions(producer(0), [P0], VERSION_1, 6_000)) is (
        ErrorCode.producer_fenced
    )
    assert code_of(lambda: fenced.ended(producer(0), True, VERSION_1, None, 6_000)) is (
        ErrorCode.producer_fenced
    )
    assert code_of(lambda: init(fenced, producer(0))) is ErrorCode.producer_fenced


def test_open_transaction_is_aborted_before_its_successor_gets_an_epoch() -> None:
    fenced = init(ongoing())
    assert (fenced.state, fenced.producer, fenced.partitions) == (
        State.PREPARE_ABORT,
        producer(1),
        frozenset({P0}),
    )
    assert code_of(lambda: init(fenced)) is ErrorCode.concurrent_transactions
    assert init(fenced.completed(6_000)).producer == producer(2)


def test_init_of_a_held_producer_does_not_abort_an_open_held_transaction() -> None:
    held = replace(ongoing(version=VERSION_2), is_held=True)
    assert (
        code_of(lambda: held.initialised(NOBODY, 60_000, True, FRESH, 5_000)) is ErrorCode.invalid_txn_state
    )
    assert init(held).state is State.PREPARE_ABORT
    over = held.ended(producer(0), True, VERSION_2, None, 3_000).completed(4_000)
    assert over.initialised(NOBODY, 60_000, True, FRESH, 5_000).producer == producer(2)


def test_repeated_init_producer_id_of_an_identity_gets_the_same_epoch() -> None:
    first = init(empty(3), producer(3))
    assert first.producer == producer(4)
    assert init(first, producer(3)) is first


def test_zombie_with_a_repeated_init_is_fenced_by_its_successor() -> None:
    another = init(init(empty(3), producer(3)))
    assert code_of(lambda: init(another, producer(3))) is ErrorCode.producer_fenced


def test_zombie_cannot_abort_the_transaction_of_its_successor() -> None:
    successor = init(empty()).with_partitions(producer(1), [P0], VERSION_1, 6_000)
    assert code_of(lambda: init(successor, producer(0))) is ErrorCode.producer_fenced


def test_init_with_an_open_transaction_aborts_it_and_raises_the_epoch_once() -> None:
    aborting = init(ongoing(3), producer(3))
    assert aborting.state is State.PREPARE_ABORT
    given = init(aborting.completed(6_000), producer(3))
    assert given.producer == producer(5)
    assert init(given, producer(3)) is given


def test_init_producer_id_gives_a_new_producer_id_when_epochs_are_exhausted() -> None:
    last = init(empty(LAST_EPOCH_OF_CLIENTS - 1))
    assert last.producer == producer(LAST_EPOCH_OF_CLIENTS)
    rotated = init(last, producer(LAST_EPOCH_OF_CLIENTS))
    assert rotated.producer == Identity(FRESH, ProducerEpoch(0))
    assert init(rotated, producer(LAST_EPOCH_OF_CLIENTS)) is rotated


@pytest.mark.parametrize("asking", [NOBODY, producer(LAST_EPOCH_OF_CLIENTS)])
def test_highest_epoch_is_reserved_for_fencing(asking: Identity) -> None:
    fenced = init(ongoing(LAST_EPOCH_OF_CLIENTS), asking)
    assert fenced.producer == producer(MAX_EPOCH)
    assert init(fenced.completed(6_000), asking).producer == Identity(FRESH, ProducerEpoch(0))


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_producer_with_the_highest_epoch_is_fenced(version: int) -> None:
    """No higher epoch is left to end its transaction with."""
    aborted = ongoing(LAST_EPOCH_OF_CLIENTS).timed_out(4_000).completed(5_000)
    claimed = producer(MAX_EPOCH)
    assert aborted.producer == claimed
    assert (
        code_of(lambda: aborted.with_partitions(claimed, [P0], version, 6_000)) is ErrorCode.producer_fenced
    )
    assert code_of(lambda: aborted.ended(claimed, False, version, FRESH, 6_000)) is ErrorCode.producer_fenced
    assert init(aborted, claimed).producer == Identity(FRESH, ProducerEpoch(0))


# --- partitions


def test_first_added_partition_opens_the_transaction_and_others_join_it() -> None:
    first = ongoing()
    second = first.with_partitions(producer(0), [P0, P1], VERSION_1, 9_000)
    assert (second.state, second.partitions) == (State.ONGOING, frozenset({P0, P1}))
    assert (second.start_ms, second.update_ms) == (2_000, 9_000)
    assert second.with_partitions(producer(0), [P1], VERSION_1, 10_000) is second


def test_next_transaction_waits_for_the_end_of_the_previous_one() -> None:
    for version, epoch in ((VERSION_1, 0), (VERSION_2, 1)):
        ending = ended(version)
        assert code_of(lambda: ending.with_partitions(producer(epoch), [P0], version, 4_000)) is (  # noqa: B023
            ErrorCode.concurrent_transactions
        )
        again = ending.completed(4_000).with_partitions(producer(epoch), [P1], version, 5_000)
        assert (again.partitions, again.start_ms) == (frozenset({P1}), 5_000)


def test_partition_is_verified_only_in_the_open_transaction_of_its_producer() -> None:
    open_one = ongoing()
    assert open_one.verify(producer(0), P0) is ErrorCode.none
    assert open_one.verify(producer(0), P1) is ErrorCode.transaction_abortable
    assert open_one.verify(producer(1), P0) is ErrorCode.producer_fenced
    assert open_one.verify(producer(0, 8), P0) is ErrorCode.invalid_producer_id_mapping
    assert empty().verify(producer(0), P0) is ErrorCode.transaction_abortable
    assert ended(VERSION_1).verify(producer(0), P0) is ErrorCode.transaction_abortable


# --- the end, version 1


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_end_keeps_the_epoch_and_is_idempotent(commit: bool) -> None:
    ending = ended(VERSION_1, commit=commit)
    assert ending.producer == ending.successor == producer(0)
    complete = ending.completed(4_000)
    assert complete.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    for moment in (ending, complete):
        assert moment.ended(producer(0), commit, VERSION_1, None, 5_000) is moment
        assert code_of(lambda: moment.ended(producer(0), not commit, VERSION_1, None, 5_000)) is (  # noqa: B023
            ErrorCode.invalid_txn_state
        )


@pytest.mark.parametrize("commit", [True, False])
def test_end_without_an_open_transaction_gets_invalid_txn_state(commit: bool) -> None:
    assert code_of(lambda: empty().ended(producer(0), commit, VERSION_1, None, 5_000)) is (
        ErrorCode.invalid_txn_state
    )


def test_end_that_races_the_timeout_gets_producer_fenced() -> None:
    aborting = ongoing().timed_out(9_000)
    for moment in (aborting, aborting.completed(10_000)):
        for version in (VERSION_1, VERSION_2):
            for commit in (True, False):
                assert code_of(lambda: moment.ended(producer(0), commit, version, None, 11_000)) is (  # noqa: B023
                    ErrorCode.producer_fenced
                )


# --- the end, version 2


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_end_gives_a_new_epoch_and_is_idempotent(commit: bool) -> None:
    ending = ended(VERSION_2, commit=commit, epoch=3)
    assert ending.producer == ending.successor == producer(4)
    complete = ending.completed(4_000)
    for moment in (ending, complete):
        assert moment.ended(producer(3), commit, VERSION_2, None, 5_000) is moment
        assert code_of(lambda: moment.ended(producer(3), not commit, VERSION_2, None, 5_000)) is (  # noqa: B023
            ErrorCode.invalid_txn_state
        )


@pytest.mark.parametrize("commit", [True, False])
def test_late_end_does_not_change_the_next_transaction(commit: bool) -> None:
    following = ended(VERSION_2).completed(4_000).with_partitions(producer(1), [P1], VERSION_2, 5_000)
    assert code_of(lambda: following.ended(producer(0), commit, VERSION_2, None, 6_000)) is (
        ErrorCode.producer_fenced
    )


def test_late_end_is_fenced_after_the_producer_was_initialised_again() -> None:
    given = init(ended(VERSION_2).completed(4_000), producer(1))
    assert given.producer == producer(2)
    assert code_of(lambda: given.ended(producer(1), True, VERSION_2, None, 6_000)) is (
        ErrorCode.producer_fenced
    )


def test_end_after_a_timeout_is_not_a_repetition() -> None:
    """A timeout ended the transaction, so no producer's request can be a repetition of that end."""
    aborted = ongoing(3, VERSION_2).timed_out(4_000)
    assert code_of(lambda: aborted.ended(NOBODY, False, VERSION_2, None, 5_000)) is (
        ErrorCode.invalid_producer_id_mapping
    )


def test_abort_without_a_transaction_fences_late_requests() -> None:
    for before in (empty(3), ended(VERSION_2, epoch=2).completed(4_000)):
        aborted = before.ended(producer(3), False, VERSION_2, None, 5_000)
        assert (aborted.state, aborted.producer) == (State.COMPLETE_ABORT, producer(4))
        assert aborted.ended(producer(3), False, VERSION_2, None, 6_000) is aborted
    assert code_of(lambda: empty().ended(producer(0), True, VERSION_2, None, 5_000)) is (
        ErrorCode.invalid_txn_state
    )


def test_version_2_end_gives_a_new_producer_id_when_epochs_are_exhausted() -> None:
    ending = ended(VERSION_2, epoch=LAST_EPOCH_OF_CLIENTS)
    following = Identity(FRESH, ProducerEpoch(0))
    assert (ending.producer, ending.successor) == (producer(MAX_EPOCH), following)
    assert code_of(lambda: ending.with_partitions(following, [P0], VERSION_2, 4_000)) is (
        ErrorCode.concurrent_transactions
    )
    complete = ending.completed(4_000)
    assert complete.producer == following
    for moment in (ending, complete):
        assert moment.ended(producer(LAST_EPOCH_OF_CLIENTS), True, VERSION_2, None, 5_000) is moment


def test_unknown_producer_gets_invalid_producer_id_mapping() -> None:
    stranger = producer(0, 8)
    for call in (
        lambda: ongoing().with_partitions(stranger, [P1], VERSION_1, 3_000),
        lambda: ongoing().ended(stranger, True, VERSION_2, None, 3_000),
    ):
        assert code_of(call) is ErrorCode.invalid_producer_id_mapping


def test_only_a_transactional_id_without_an_open_transaction_expires() -> None:
    assert empty().expires_ms(500) == 1_500
    assert ongoing().expires_ms(500) is None
    assert ended(VERSION_1).expires_ms(500) is None
    assert ended(VERSION_1).completed(4_000).expires_ms(500) == 4_500
