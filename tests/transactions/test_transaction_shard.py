"""A shard of transactions: order of responses, waits, timeouts, expiry, and refused appends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from coordinator_bench import P0, P1, Bench, turns

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import ProducerEpoch
from penstock.transactions import shard as shard_module
from penstock.transactions.transaction import (
    NOBODY,
    VERSION_1,
    VERSION_2,
    Identity,
    TransactionState,
)


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


def state_of(bench: Bench, transactional_id: str = "t") -> TransactionState:
    return bench.shard.transactions[transactional_id].state


async def test_init_producer_id_is_answered_after_its_record_is_committed() -> None:
    bench = Bench()
    task = asyncio.ensure_future(bench.shard.init_producer_id("t", NOBODY, 60_000, False))
    await turns()
    assert not task.done()
    bench.log.commit()
    assert await task == (101, 0)


async def test_markers_are_written_after_the_decision_is_committed() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    task = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    assert state_of(bench) is TransactionState.PREPARE_COMMIT
    assert not bench.endings
    bench.log.commit()
    assert await task == producer
    (ending,) = bench.endings
    assert (ending.marker, ending.left) == ((101, 0, True, 1), frozenset({P0, P1}))
    bench.write_marker(ending, P0)
    assert state_of(bench) is TransactionState.PREPARE_COMMIT
    assert bench.shard.partitions_of("t") == {P1}
    bench.write_marker(ending, P1)
    assert state_of(bench) is TransactionState.COMPLETE_COMMIT
    assert bench.counts.commits == 1


async def test_plain_end_is_appended_at_once_and_done_when_committed() -> None:
    bench = Bench()
    producer = await bench.init()
    assert bench.shard.plain_end("t", producer, True, VERSION_1) is None, "nothing is open"
    await bench.add(producer)
    stranger = Identity(producer.producer_id, ProducerEpoch(7))
    assert bench.shard.plain_end("t", stranger, True, VERSION_1) is None
    decided = bench.shard.plain_end("t", producer, True, VERSION_2)
    assert decided is not None
    assert state_of(bench) is TransactionState.ONGOING
    assert decided.successor == (producer.producer_id, producer.epoch + 1)
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.shard.record_at_once("t", decided, recorded)
    assert state_of(bench) is TransactionState.PREPARE_COMMIT
    assert not recorded.done()
    assert not bench.endings
    bench.log.commit()
    assert recorded.done()
    assert len(bench.endings) == 1


async def test_plain_addition_begins_a_transaction_without_waiting_for_one() -> None:
    bench = Bench()
    producer = await bench.init()
    assert bench.shard.plain_addition("unknown", producer, [P0], VERSION_1) is None
    stranger = Identity(producer.producer_id, ProducerEpoch(7))
    assert bench.shard.plain_addition("t", stranger, [P0], VERSION_1) is None
    decided = bench.shard.plain_addition("t", producer, [P0], VERSION_1)
    assert decided is not None
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.shard.record_at_once("t", decided, recorded)
    bench.log.commit()
    assert recorded.done()
    assert bench.shard.partitions_of("t") == {P0}
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    assert bench.shard.plain_addition("t", producer, [P0], VERSION_1) is None, "the transaction ends"
    await bench.rest()
    await ending


async def test_refused_plain_decision_closes_the_shard() -> None:
    bench = Bench()
    producer = await bench.init()
    decided = bench.shard.plain_addition("t", producer, [P0], VERSION_1)
    assert decided is not None
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.shard.record_at_once("t", decided, recorded)
    bench.log.refuse()
    with pytest.raises(BrokerError):
        recorded.result()
    assert bench.lost_shards == [bench.shard]
    assert bench.shard.plain_addition("t", producer, [P0], VERSION_1) is None
    assert bench.shard.plain_end("t", producer, True, VERSION_1) is None


async def test_partition_is_verified_when_its_addition_is_committed() -> None:
    bench = Bench()
    producer = await bench.init()
    adding = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P0], VERSION_1))
    await turns()
    verifying = asyncio.ensure_future(bench.shard.verify("t", producer, [P0, P1]))
    await turns()
    assert not verifying.done()
    bench.log.commit(1)
    await bench.rest()
    assert await verifying == {P0: ErrorCode.none, P1: ErrorCode.transaction_abortable}
    await adding


async def test_coordinator_vouches_only_for_committed_partitions_of_open_transactions() -> None:
    bench = Bench()
    producer = await bench.init()
    adding = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P0], VERSION_1))
    await turns()
    assert not bench.shard.vouches_for("t", producer, P0)
    await bench.rest()
    await adding
    assert bench.shard.vouches_for("t", producer, P0)
    assert not bench.shard.vouches_for("t", producer, P1)
    assert not bench.shard.vouches_for("t", Identity(producer.producer_id, ProducerEpoch(7)), P0)
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    assert not bench.shard.vouches_for("t", producer, P0)
    await bench.rest()
    await ending


async def test_partition_added_while_another_is_verified_does_not_count_as_committed() -> None:
    bench = Bench()
    producer = await bench.init()
    first = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P0], VERSION_1))
    await turns()
    verifying = asyncio.ensure_future(bench.shard.verify("t", producer, [P1]))
    await turns()
    second = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P1], VERSION_1))
    await turns()
    bench.log.commit(2)
    await turns()
    assert not verifying.done(), "a coordinator that takes over now knows nothing of the second"
    await bench.rest()
    assert await verifying == {P1: ErrorCode.none}
    await asyncio.gather(first, second)


@pytest.mark.parametrize("request_of", ["end", "add", "verify", "init"])
async def test_refusal_is_answered_after_this_coordinator_has_committed(request_of: str) -> None:
    bench = Bench()
    producer = await bench.init()
    stranger = Identity(producer.producer_id, ProducerEpoch(7))
    ask: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "end": lambda: bench.shard.end("t", stranger, True, VERSION_1),
        "add": lambda: bench.shard.add_partitions("t", stranger, [P0], VERSION_1),
        "verify": lambda: bench.shard.verify("nobody", stranger, [P0]),
        "init": lambda: bench.shard.init_producer_id("t", stranger, 60_000, False),
    }
    task = asyncio.ensure_future(ask[request_of]())
    await turns()
    assert not task.done(), "the next coordinator may know better"
    bench.shard.close(ErrorCode.not_coordinator)
    assert await refused(task) is ErrorCode.not_coordinator


async def test_repeated_end_is_answered_after_this_coordinator_has_committed() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    await bench.end(producer)
    await bench.rest()
    again = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    assert not again.done(), "it may be the end of a transaction that another coordinator knows"
    bench.shard.close(ErrorCode.not_coordinator)
    assert await refused(again) is ErrorCode.not_coordinator


async def test_end_repeated_in_progress_writes_no_second_markers() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    first = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    again = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.commit(2)
    await asyncio.gather(first, again)
    assert len(bench.endings) == 1
    late = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.write_all()
    await bench.rest()
    await late
    assert len(bench.endings) == 1
    assert bench.counts.commits == 1


async def test_next_transaction_begins_when_the_previous_one_has_ended() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.commit()
    await ending
    adding = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P1], VERSION_1))
    await turns()
    assert not adding.done()
    bench.write_all()
    await turns()
    bench.log.commit(2)
    await adding
    assert bench.shard.transactions["t"].partitions == {P1}


async def test_request_that_waits_too_long_gets_concurrent_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_module, "COMPLETION_WAIT_SECONDS", 0.001)
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.commit()
    await ending
    assert await refused(bench.shard.add_partitions("t", producer, [P1], VERSION_1)) is (
        ErrorCode.concurrent_transactions
    )
    assert await refused(bench.shard.init_producer_id("t", NOBODY, 60_000, False)) is (
        ErrorCode.concurrent_transactions
    )
    assert bench.shard._completions._waiting == {}, "who was told waits no more, however long the end takes"


async def test_add_partitions_of_a_broker_gets_concurrent_transactions_without_a_wait() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer, version=VERSION_2)
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_2))
    await turns()
    bench.log.commit()
    following = await ending
    adding = bench.shard.add_partitions("t", following, [P1], VERSION_2, may_wait=False)
    assert await refused(adding) is ErrorCode.concurrent_transactions


async def test_new_producer_waits_for_the_abort_of_an_open_transaction() -> None:
    bench = Bench()
    old = await bench.init()
    await bench.add(old)
    new = await bench.init()
    assert new == (101, 2)
    assert [(partition, marker.is_commit, marker.producer_epoch) for partition, marker in bench.markers] == [
        (P0, False, 1),
        (P1, False, 1),
    ]
    assert await refused(bench.end(old)) is ErrorCode.producer_fenced
    assert await refused(bench.add(old, P0)) is ErrorCode.producer_fenced


async def test_transaction_open_beyond_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    bench = Bench()
    producer = await bench.init(timeout_ms=10_000)
    await bench.add(producer)
    bench.advance(9_999)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING
    bench.advance(1)
    bench.fire()
    assert state_of(bench) is TransactionState.PREPARE_ABORT
    await bench.rest()
    assert state_of(bench) is TransactionState.COMPLETE_ABORT
    assert bench.counts.timeouts == 1
    assert await refused(bench.end(producer)) is ErrorCode.producer_fenced


async def test_added_partitions_do_not_extend_the_transaction_timeout() -> None:
    bench = Bench()
    producer = await bench.init(timeout_ms=10_000)
    await bench.add(producer, P0)
    bench.advance(6_000)
    await bench.add(producer, P1)
    await bench.end(producer)
    bench.advance(3_000)
    await bench.add(producer, P0)
    bench.advance(9_000)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING
    bench.advance(1_000)
    bench.fire()
    assert state_of(bench) is TransactionState.PREPARE_ABORT


async def test_wall_clock_jump_aborts_no_transaction() -> None:
    bench = Bench()
    producer = await bench.init(timeout_ms=10_000)
    await bench.add(producer)
    bench.wall += 3_600_000
    bench.fire()
    bench.advance(9_000)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING


async def test_open_transaction_times_out_after_a_reload_too() -> None:
    bench = Bench()
    await bench.add(await bench.init(timeout_ms=10_000))
    bench.advance(4_000)
    bench.crash()
    bench.advance(5_999)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING
    bench.advance(1)
    bench.fire()
    await bench.rest()
    assert state_of(bench) is TransactionState.COMPLETE_ABORT


async def test_held_transaction_ends_by_request_and_not_by_timeout() -> None:
    bench = Bench()
    producer = await bench.init(timeout_ms=10_000, is_held=True)
    await bench.add(producer, version=VERSION_2)
    bench.crash()
    bench.advance(10_000_000)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING
    assert bench.shard.transactions["t"].is_held
    assert await bench.end(producer, version=VERSION_2) == (101, 1)
    assert {marker.is_commit for _, marker in bench.markers} == {True}


async def test_idle_transactional_id_expires_and_one_in_a_transaction_does_not() -> None:
    bench = Bench(transactional_id_expiration_ms="1000")
    await bench.add(await bench.init("open"), id="open")
    producer = await bench.init("idle")
    bench.advance(1_000)
    bench.shard.sweep()
    await bench.rest()
    assert set(bench.shard.transactions) == {"open"}
    bench.crash()
    assert set(bench.shard.transactions) == {"open"}
    assert await refused(bench.end(producer, id="idle")) is ErrorCode.invalid_producer_id_mapping
    assert (await bench.init("idle", producer)).producer_id != producer.producer_id


async def test_tombstones_of_ids_that_expire_together_are_split_into_batches() -> None:
    """Records that are added together share a batch, and a batch above the limit cannot be replicated."""
    bench = Bench(transactional_id_expiration_ms="1000")
    for number in range(3):
        await bench.init(f"idle-{number}")
    bench.advance(1_000)
    bench.shard.sweep()
    assert [len(records) for records, _ in bench.log.waiting] == [1, 1, 1]
    await bench.rest()
    bench.crash()
    assert not bench.shard.transactions


async def test_new_transactional_id_above_the_maximum_is_refused() -> None:
    bench = Bench(transactional_id_max_count="2")
    await bench.init("a")
    await bench.init("b")
    assert await refused(bench.init("c")) is ErrorCode.policy_violation
    await bench.init("a")


async def test_held_transactional_id_above_the_maximum_is_refused() -> None:
    bench = Bench(transaction_held_max_count="1", transactional_id_expiration_ms="1000")
    await bench.init("a", is_held=True)
    assert await refused(bench.init("b", is_held=True)) is ErrorCode.policy_violation
    await bench.init("b")
    assert await refused(bench.init("b", is_held=True)) is ErrorCode.policy_violation
    await bench.init("a", is_held=True)
    bench.crash()
    assert await refused(bench.init("b", is_held=True)) is ErrorCode.policy_violation
    await bench.init("a")
    await bench.init("b", is_held=True)
    bench.advance(1_000)
    bench.shard.sweep()
    await bench.init("a", is_held=True)


async def test_long_transactional_id_counts_as_several_until_it_expires() -> None:
    bench = Bench(transactional_id_max_count="4", transactional_id_expiration_ms="1000")
    await bench.init("x" * 1_024)
    assert await refused(bench.init("y")) is ErrorCode.policy_violation
    bench.advance(1_000)
    bench.shard.sweep()
    await bench.init("y")
    bench.crash()
    assert bench.shard.id_characters == 1


# --- late requests of version 1


async def test_late_end_on_an_older_connection_is_refused() -> None:
    bench = Bench()
    producer = await bench.init()
    bench.shard.check_connection("t", producer, 5)
    await bench.add(producer)
    # The EndTxn of the first transaction is delayed on connection 5; the client continues over connection 6.
    bench.shard.check_connection("t", producer, 6)
    await bench.end(producer)
    bench.shard.check_connection("t", producer, 6)
    await bench.add(producer)
    with pytest.raises(ProtocolError):
        bench.shard.check_connection("t", producer, 5)
    assert state_of(bench) is TransactionState.ONGOING
    assert bench.counts.late_requests == 1
    bench.shard.check_connection("t", producer, 6)
    bench.shard.check_connection("t", producer, 9)


async def test_successor_is_accepted_on_an_older_connection_than_its_zombie() -> None:
    bench = Bench()
    zombie = await bench.init()
    successor = await bench.init()
    bench.shard.check_connection("t", zombie, 7)
    bench.shard.check_connection("t", zombie, 4)
    bench.shard.check_connection("t", successor, 6)


async def test_new_producer_epoch_is_accepted_on_an_older_connection() -> None:
    """Some clients request an epoch over another connection than they use for transactions."""
    bench = Bench()
    producer = await bench.init()
    bench.shard.check_connection("t", producer, 6)
    producer = await bench.init()
    bench.shard.check_connection("t", producer, 5)


async def test_request_on_a_connection_older_than_the_leadership_is_refused() -> None:
    bench = Bench()
    producer = await bench.init()
    bench.start(bench.log.committed, first_connection=8)
    with pytest.raises(ProtocolError):
        bench.shard.check_connection("t", producer, 7)
    bench.shard.check_connection("t", producer, 8)
    producer = await bench.init(asking=producer)
    bench.shard.check_connection("t", producer, 7)


# --- refused appends


async def test_refused_record_closes_the_shard_and_fails_waiting_requests() -> None:
    bench = Bench()
    first = asyncio.ensure_future(bench.shard.init_producer_id("t", NOBODY, 60_000, False))
    second = asyncio.ensure_future(bench.shard.init_producer_id("u", NOBODY, 60_000, False))
    await turns()
    bench.log.refuse()
    assert await refused(first) is ErrorCode.coordinator_not_available
    assert await refused(second) is ErrorCode.coordinator_not_available
    assert bench.lost_shards == [bench.shard]
    assert await refused(bench.shard.end("t", Identity(*NOBODY), True, VERSION_1)) is (
        ErrorCode.coordinator_not_available
    )


async def test_end_appended_behind_a_refused_record_writes_no_markers() -> None:
    """Another coordinator may have decided otherwise."""
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    refused = asyncio.ensure_future(bench.shard.init_producer_id("u", NOBODY, 60_000, False))
    await turns()
    ending = asyncio.ensure_future(bench.shard.end("t", producer, False, VERSION_1))
    await turns()
    bench.log.refuse()
    await asyncio.gather(refused, ending, return_exceptions=True)
    assert bench.endings == []


async def test_request_waiting_for_an_end_fails_when_the_shard_closes() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.commit()
    await ending
    waiting = asyncio.ensure_future(bench.shard.init_producer_id("t", NOBODY, 60_000, False))
    await turns()
    bench.shard.close(ErrorCode.not_coordinator)
    assert await refused(waiting) is ErrorCode.not_coordinator
    assert bench.endings[0].is_abandoned


# --- version 2


async def test_every_version_2_transaction_has_its_own_producer_epoch() -> None:
    bench = Bench()
    producer = await bench.init()
    for epoch in range(1, 4):
        await bench.add(producer, P0, version=VERSION_2)
        producer = await bench.end(producer, version=VERSION_2)
        assert producer == (101, epoch)
        await bench.rest()
        assert bench.markers[-1][1].producer_epoch == epoch


async def test_late_end_of_version_2_is_refused_by_its_epoch() -> None:
    bench = Bench()
    first = await bench.init()
    await bench.add(first, version=VERSION_2)
    second = await bench.end(first, version=VERSION_2)
    await bench.rest()
    await bench.add(second, version=VERSION_2)
    for commit in (True, False):
        assert await refused(bench.end(first, commit, VERSION_2)) is ErrorCode.producer_fenced
    assert state_of(bench) is TransactionState.ONGOING


async def test_end_under_the_last_epoch_gives_a_new_producer_id() -> None:
    bench = Bench()
    await bench.init()
    transaction = bench.shard.transactions["t"]
    last = Identity(transaction.producer.producer_id, ProducerEpoch(32_766))
    object.__setattr__(transaction, "producer", last)
    await bench.add(last, version=VERSION_2)
    following = await bench.end(last, version=VERSION_2)
    await bench.rest()
    assert following == (102, 0)
    assert await bench.end(last, version=VERSION_2) == following
    await bench.add(following, version=VERSION_2)
