"""A shard of transactions whose log is under min ISR."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from coordinator_bench import Bench, turns
from test_transaction_shard import state_of

from penstock.errors import BrokerError, ErrorCode
from penstock.transactions import shard as shard_module
from penstock.transactions.transaction import NOBODY, VERSION_1, Identity, TransactionState
from support.eventually import eventually_async

UNAVAILABLE = ErrorCode.coordinator_not_available


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "REPLICAS_RETRY_MS", 1)


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


async def open_transaction() -> tuple[Bench, Identity]:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    return bench, producer


async def test_writing_requests_are_refused_under_min_isr_before_a_decision() -> None:
    bench, producer = await open_transaction()
    known, written = dict(bench.shard.transactions), list(bench.log.committed)
    bench.log.replica.is_under_min_insync = True
    shard = bench.shard
    assert await refused(shard.init_producer_id("t", NOBODY, 60_000, False)) is UNAVAILABLE
    assert await refused(shard.init_producer_id("new", NOBODY, 60_000, False)) is UNAVAILABLE
    assert await refused(shard.add_partitions("t", producer, (), VERSION_1)) is UNAVAILABLE
    assert shard.plain_addition("t", producer, (), VERSION_1) is None
    assert shard.plain_end("t", producer, True, VERSION_1) is None
    assert await refused(shard.end("t", producer, True, VERSION_1)) is UNAVAILABLE
    assert dict(shard.transactions) == known
    assert (bench.log.committed, bench.log.waiting, bench.lost_shards) == (written, [], [])
    bench.log.replica.is_under_min_insync = False
    await bench.settle(shard.end("t", producer, True, VERSION_1))
    await bench.rest()
    assert shard.transactions["t"].state is TransactionState.COMPLETE_COMMIT


async def test_verification_continues_under_min_isr() -> None:
    bench, producer = await open_transaction()
    bench.log.replica.is_under_min_insync = True
    (partition, *_) = bench.shard.partitions_of("t")
    assert await bench.shard.verify("t", producer, [partition]) == {partition: ErrorCode.none}
    assert bench.shard.vouches_for("t", producer, partition)


async def test_decision_committed_under_min_isr_has_no_markers_yet() -> None:
    bench, producer = await open_transaction()
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.replica.is_under_min_insync = True
    bench.log.commit()
    assert await refused(ending) is UNAVAILABLE
    assert state_of(bench) is TransactionState.PREPARE_COMMIT
    assert (bench.endings, bench.lost_shards) == ([], [])
    bench.log.replica.is_under_min_insync = False
    await eventually_async(lambda: bench.endings)
    await bench.rest()
    assert state_of(bench) is TransactionState.COMPLETE_COMMIT


async def test_shard_loaded_under_min_isr_writes_its_markers_later() -> None:
    bench, producer = await open_transaction()
    ending = asyncio.ensure_future(bench.shard.end("t", producer, True, VERSION_1))
    await turns()
    bench.log.commit()
    await ending
    bench.shard.close(ErrorCode.not_coordinator)
    bench.log.replica.is_under_min_insync = True
    bench.endings.clear()
    bench.load(1)
    bench.log._closed = None
    bench.shard.resume()
    await turns()
    assert bench.endings == []
    bench.log.replica.is_under_min_insync = False
    await eventually_async(lambda: bench.endings)
    await bench.rest()
    assert state_of(bench) is TransactionState.COMPLETE_COMMIT


async def test_open_transaction_times_out_when_replicas_are_back() -> None:
    bench, _ = await open_transaction()
    bench.log.replica.is_under_min_insync = True
    bench.advance(60_001)
    bench.fire()
    assert state_of(bench) is TransactionState.ONGOING
    bench.log.replica.is_under_min_insync = False
    bench.advance(1)
    bench.fire()
    await bench.rest()
    assert state_of(bench) is TransactionState.COMPLETE_ABORT


async def test_expired_transactional_ids_are_kept_under_min_isr() -> None:
    bench = Bench()
    await bench.init()
    bench.advance(10 * 86_400_000)
    bench.log.replica.is_under_min_insync = True
    bench.shard.sweep()
    assert "t" in bench.shard.transactions
    bench.log.replica.is_under_min_insync = False
    bench.shard.sweep()
    assert "t" not in bench.shard.transactions
