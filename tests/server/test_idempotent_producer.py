"""The idempotent producer and its routes, against whole brokers over TCP: each record once and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.model import Offset
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from penstock.records.building import NewRecord
from penstock.records.iteration import iterate, read_batches
from penstock.replication import keyed_log
from penstock.replication.waiting import CommitWaiters
from penstock.storage.log import Log
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

ORDERS = "orders"


def routes_to(brokers: Brokers) -> Routes:
    addresses = [Address("localhost", broker.port) for broker in brokers.running.values()]
    return Routes(TcpNetwork(), addresses, "test")


def record(number: int) -> NewRecord:
    return NewRecord(b"k", b"%d" % number, 1_700_000_000_000)


def stored(broker: Harness, partition: int = 0) -> list[int]:
    log = broker.context.replicas.get(ORDERS, partition).log
    values: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, below=log.log_end_offset, at_least_one=True, wait=True).read()
        for header, batch in read_batches(memoryview(part)):
            values += [int(each.value or b"-1") for each in iterate(batch, header)]
            offset = Offset(header.next_offset)
    return values


def test_concurrent_sends_are_stored_in_order_at_returned_offsets(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS)
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        offsets = await asyncio.gather(*(sender.send(ORDERS, 0, record(number)) for number in range(5_000)))
        assert list(offsets) == list(range(5_000))
        assert stored(broker) == list(range(5_000))
        alone = [sender.send(ORDERS, 0, record(number), is_alone=True) for number in range(3)]
        assert list(await asyncio.gather(*alone)) == [5_000, 5_001, 5_002]
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


def test_send_many_stores_in_order_at_returned_offsets(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS)
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        sent = sender.send_many(ORDERS, 0, [record(number) for number in range(5_000)])
        single = sender.send(ORDERS, 0, record(5_000))
        place = 0
        for first, count in sent:
            assert await first == place
            place += count
        assert (place, await single) == (5_000, 5_000)
        assert stored(broker) == list(range(5_001))
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


def test_too_large_record_fails_alone(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS, max_message_bytes="1000")
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        large = NewRecord(None, b"1" * 2_000, 1_700_000_000_000)
        sent = [sender.send(ORDERS, 0, large if number == 7 else record(number)) for number in range(40)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        refused = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BrokerError)]
        assert refused == [7]
        assert stored(broker) == [number for number in range(40) if number != 7]
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


def test_records_are_stored_once_across_leader_changes(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = {number: await brokers.start(number) for number in (1, 2, 3)}
        await eventually_async(
            lambda: all(len(each._metadata.image.brokers) == 3 for each in brokers.running.values())
        )
        await harnesses[1].create(ORDERS)
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        sent: list[asyncio.Future[int]] = []
        for number in range(300):
            sent.append(sender.send(ORDERS, 0, record(number)))
            await asyncio.sleep(0.002)
            if number == 100:
                leader = (await routes.topic(ORDERS)).partitions[0].leader
                await brokers.stop(leader)
        assert list(await asyncio.gather(*sent)) == list(range(300))
        leader = (await routes.topic(ORDERS)).partitions[0].leader
        assert stored(harnesses[leader]) == list(range(300))
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


def test_refused_record_does_not_block_others(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS, max_message_bytes="2000")
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        too_large = sender.send(ORDERS, 0, NewRecord(None, bytes(5_000), 0), is_alone=True)
        right = sender.send(ORDERS, 0, record(1))
        with pytest.raises(BrokerError) as refusal:
            await too_large
        assert refusal.value.code is ErrorCode.message_too_large
        assert await right == 0
        with pytest.raises(BrokerError) as missing:
            await sender.send("nowhere", 0, record(1))
        assert missing.value.code is ErrorCode.unknown_topic_or_partition
        with pytest.raises(BrokerError):
            await routes.leader(ORDERS, 1)
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_lost_response_raises_outcome_unknown(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first = await brokers.start(1)
        second = await brokers.start(2)
        await eventually_async(lambda: len(brokers.running[1]._metadata.image.brokers) == 2)
        await first.create(ORDERS)
        topic = first.context.image.topics[ORDERS]
        leader = topic.partitions[0].leader
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes, delivery_seconds=2.0)
        assert await sender.send(ORDERS, 0, record(0)) == 0
        # The leader appends the batch, but does not respond any more.
        holder = {1: first, 2: second}[leader]
        replica = holder.context.replicas.get(ORDERS, 0)
        replica.acknowledging = lambda *_: CommitWaiters()  # type: ignore[method-assign]
        sending = sender.send(ORDERS, 0, record(1))
        await eventually_async(lambda: replica.log.log_end_offset == 2)
        await brokers.stop(leader)
        with pytest.raises(OutcomeUnknown):
            await sending
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_queued_record_fails_within_its_delivery_time(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS)
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes, delivery_seconds=2.0)
        assert await sender.send(ORDERS, 0, record(0)) == 0
        replica = broker.context.replicas.get(ORDERS, 0)
        replica.acknowledging = lambda *_: CommitWaiters()  # type: ignore[method-assign]
        sent = [sender.send(ORDERS, 0, record(number), is_alone=True) for number in range(1, 4)]
        async with asyncio.timeout(5.0):
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(outcomes[0], OutcomeUnknown)
        assert [error.code for error in outcomes[1:] if isinstance(error, BrokerError)] == [
            ErrorCode.request_timed_out,
            ErrorCode.request_timed_out,
        ]
        assert stored(broker) == [0, 1]
        await sender.close()
        routes.close()

    run(tmp_path, scenario)


def test_group_coordinator_is_found(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        routes = routes_to(brokers)

        async def connection_of(connection: BrokerConnection) -> BrokerConnection:
            return connection

        connection = await routes.at_coordinator(CoordinatorKind.GROUP, "readers", connection_of)
        assert connection is await routes.at_coordinator(CoordinatorKind.GROUP, "readers", connection_of)
        assert connection is await routes.broker(routes.controller)
        routes.close()

    run(tmp_path, scenario, offsets_topic_num_partitions="2")


def test_producing_that_outruns_the_key_index_is_slowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_log, "MAX_LAG_RECORDS", 50)
    lags: list[int] = []

    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS, index_by_key="true")
        replica = broker.context.replicas.get(ORDERS, 0)
        keyed, append = replica.keyed, replica.log.append
        assert keyed is not None

        def noting(*given: Any, **named: Any) -> Any:
            lags.append(replica.log.log_end_offset - keyed._index.end_offset)
            return append(*given, **named)

        monkeypatch.setattr(Log, "append", lambda _, *given, **named: noting(*given, **named))
        routes = routes_to(brokers)
        sender = IdempotentProducer(routes)
        sent = [sender.send(ORDERS, 0, record(number), is_alone=True) for number in range(1_000)]
        assert list(await asyncio.gather(*sent)) == list(range(1_000))
        await sender.close()
        routes.close()

    run(tmp_path, scenario)
    assert len(lags) == 1_000
    assert max(lags) <= 50 + 1
