"""Views on several brokers: read from followers, through a reassignment, and after a restart without a new scan."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_follower_reads import RACK_AWARE, started_in_racks
from test_reassignment_handlers import codes, reassign
from test_replicas_on_brokers import ORDERS, create, started

from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from penstock.records.iteration import iterate, read_batches
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

VIEW = "orders.wanted"
FILTER = 'value.startsWith("wanted")'


async def fetch(harness: Harness, offset: int, rack: str = "") -> FetchResult:
    client = await BrokerConnection.connect(TcpNetwork(), "127.0.0.1", harness._broker.port, "test")
    try:
        wanted = FetchTopic(VIEW, None, [FetchPartition(0, offset, 1 << 20)])
        correlation_id = client.next_correlation_id()
        request = FetchRequest(0, 1, [wanted], [], rack_id=rack)
        frame = encode_fetch_request(correlation_id, 11, "test", request)
        response = decode_fetch_response(await client.exchange(correlation_id, frame), 11)
        return response.topics[0].partitions[0]
    finally:
        client.close()


async def read_all(harness: Harness, end: int, rack: str = "") -> list[tuple[int, bytes]]:
    """The records of the view up to an offset; every response moves the reader."""
    position, found = 0, []
    while position < end:
        result = await fetch(harness, position, rack)
        assert result.error_code == 0
        before = position
        for header, batch in read_batches(memoryview(result.records)):  # type: ignore[arg-type]
            if not header.is_control:
                found += [(record.offset, record.value or b"") for record in iterate(batch, header)]
            position = header.next_offset
        assert position > before
    return found


async def fill(harness: Harness, count: int = 40) -> list[tuple[int, bytes]]:
    """Write records of which every fourth matches; return those."""
    wanted = []
    for number in range(count):
        value = b"wanted %d" % number if number % 4 == 0 else b"other %d" % number
        offset = await harness.append(ORDERS, value)
        if number % 4 == 0:
            wanted.append((offset, value))
    return wanted


def test_an_in_sync_follower_serves_a_view(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2])
        await first.create(VIEW, view_of=ORDERS, view_filter=FILTER)
        wanted = await fill(first)
        await eventually_async(lambda: VIEW in second.context.image.topics)
        await eventually_async(lambda: second.context.replicas._replicas[ORDERS, 0].log.high_watermark == 40)
        told = await fetch(first, 0, "b")
        assert (told.error_code, told.preferred_read_replica, len(told.records)) == (0, 2, 0)
        assert await read_all(second, 40, "b") == wanted
        assert await read_all(first, 40) == wanted

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE)


def test_a_view_follows_its_source_to_other_brokers(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second, third = await started(brokers, 3)
        await create(first, [1, 2])
        await first.create(VIEW, view_of=ORDERS, view_filter=FILTER)
        wanted = await fill(first)
        assert await read_all(first, 40) == wanted
        assert codes(await reassign(first, (ORDERS, 0, [3, 2]))) == [0]
        await eventually_async(
            lambda: (
                third.context.image.topics[ORDERS].partitions[0].leader in (2, 3)
                and set(third.context.image.topics[ORDERS].partitions[0].replicas) == {2, 3}
            )
        )
        leader = second if third.context.image.topics[ORDERS].partitions[0].leader == 2 else third
        await eventually_async(lambda: leader.context.replicas.get(ORDERS, 0).log.high_watermark == 40)
        assert await read_all(leader, 40) == wanted

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_restarted_broker_reads_matches_of_closed_segments_from_files(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        [first] = await started(brokers, 1)
        await first.create(ORDERS, segment_bytes="1024")
        await first.create(VIEW, view_of=ORDERS, view_filter=FILTER)
        wanted = await fill(first)
        assert await read_all(first, 40) == wanted
        log = first.context.replicas.get(ORDERS, 0).log
        await eventually_async(lambda: all(segment.derived for segment in log.segments[:-1]))
        await brokers.stop(1)
        [again] = await started(brokers, 1)
        assert await read_all(again, 40) == wanted
        active = 40 - again.context.replicas.get(ORDERS, 0).log.segments[-1].base_offset
        assert again.context.replicas.scan_slots.scanned <= active

    run(tmp_path, scenario)


@pytest.mark.slow
def test_files_of_a_deleted_view_are_removed(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        [first] = await started(brokers, 1)
        await first.create(ORDERS, segment_bytes="1024")
        await first.create(VIEW, view_of=ORDERS, view_filter=FILTER)
        await fill(first)
        await read_all(first, 40)
        log = first.context.replicas.get(ORDERS, 0).log
        await eventually_async(lambda: all(segment.derived for segment in log.segments[:-1]))
        fields = {"topics": [{"name": VIEW, "topic_id": None}], "topic_names": [VIEW], "timeout": 5_000}
        await first.ask(20, 4, fields)
        await eventually_async(lambda: not any(segment.derived for segment in log.segments))
        await eventually_async(lambda: not list(tmp_path.rglob("*.matches")))

    run(tmp_path, scenario)
