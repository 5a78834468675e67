"""Delay topics on several brokers: read from followers, and moved to other brokers while messages are pending."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_follower_reads import RACK_AWARE, started_in_racks
from test_reassignment_handlers import codes, reassign
from test_replicas_on_brokers import ORDERS, create, started

from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

HOUR_MS = 3_600_000


async def exchange(harness: Harness, frame: bytes) -> memoryview:
    client = await BrokerConnection.connect(TcpNetwork(), "127.0.0.1", harness._broker.port, "test")
    try:
        return await client.exchange(1, frame)
    finally:
        client.close()


async def send(harness: Harness, value: bytes, delay_ms: int | None) -> None:
    headers = () if delay_ms is None else (("penstock-delay-ms", b"%d" % delay_ms),)
    batch = memoryview(build_batch([NewRecord(b"k", value, 1_000, headers)]))
    data = [ProduceTopic(ORDERS, None, [ProducePartition(0, batch)])]
    frame = encode_produce_request(1, 9, "test", ProduceRequest(None, -1, 5_000, data))
    result = decode_produce_response(await exchange(harness, frame), 9).topics[0].partitions[0]
    assert result.error_code == 0, result.error_message


async def fetch(harness: Harness, offset: int, rack: str = "") -> FetchResult:
    wanted = FetchTopic(ORDERS, None, [FetchPartition(0, offset, 1 << 20)])
    frame = encode_fetch_request(1, 11, "test", FetchRequest(0, 1, [wanted], [], rack_id=rack))
    return decode_fetch_response(await exchange(harness, frame), 11).topics[0].partitions[0]


async def values(harness: Harness, rack: str = "") -> list[bytes]:
    """Everything that a reader is shown up to the high watermark; every response moves the reader."""
    position, end, found = 0, 1, []
    while position < end:
        result = await fetch(harness, position, rack)
        assert result.error_code == 0
        before, end = position, result.high_watermark
        for header, batch in read_batches(memoryview(result.records)):  # type: ignore[arg-type]
            if not header.is_control:
                found += [record.value or b"" for record in iterate(batch, header)]
            position = header.next_offset
        assert position > before
    return found


def test_an_in_sync_follower_hides_pending_messages(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2], delivery_delay="true")
        for number in range(20):
            await send(first, b"%d" % number, None if number % 4 == 0 else HOUR_MS)
        await send(first, b"soon", 50)
        log = second.context.replicas._replicas[ORDERS, 0].log
        await eventually_async(lambda: log.high_watermark == 22)
        told = await fetch(first, 0, "b")
        assert (told.error_code, told.preferred_read_replica, len(told.records)) == (0, 2, 0)
        expected = [b"0", b"4", b"8", b"12", b"16", b"soon"]
        assert await values(second, "b") == expected
        assert await values(first) == expected

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE)


@pytest.mark.slow
def test_pending_messages_follow_their_partition_to_other_brokers(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second, third = await started(brokers, 3)
        await create(first, [1, 2], delivery_delay="true", segment_bytes="1024")
        for number in range(30):
            await send(first, b"%d" % number, HOUR_MS if number else 2_000)
        assert codes(await reassign(first, (ORDERS, 0, [3, 2]))) == [0]
        await eventually_async(
            lambda: (
                third.context.image.topics[ORDERS].partitions[0].leader in (2, 3)
                and set(third.context.image.topics[ORDERS].partitions[0].replicas) == {2, 3}
            )
        )
        leader = second if third.context.image.topics[ORDERS].partitions[0].leader == 2 else third
        await eventually_async(
            lambda: (
                (delayed := leader.context.replicas.get(ORDERS, 0).delayed) is not None
                and delayed.is_ready
                and len(delayed.pending) == 29
                and not delayed.pending.in_flight
            ),
            "the message that is due is delivered",
        )
        assert await values(leader) == [b"0"]

    run(tmp_path, scenario)
