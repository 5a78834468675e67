"""Consumers that a follower in their rack serves, and those that it does not (KIP-392); high watermark of a
new leader.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_replicas_on_brokers import ORDERS, create, started

from penstock.errors import ErrorCode
from penstock.model import BrokerId, LeaderEpoch, TopicPartition
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import SHORT_LAG, Brokers, run

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


async def started_in_racks(brokers: Brokers, racks: list[str]) -> list[Harness]:
    for number, rack in enumerate(racks, 1):
        brokers._settings["broker.rack"] = rack
        await brokers.start(number)
    await eventually_async(
        lambda: all(len(broker._metadata.image.brokers) == len(racks) for broker in brokers.running.values())
    )
    return [Harness(broker) for broker in brokers.running.values()]


async def fetch(
    harness: Harness,
    offset: int = 0,
    rack: str = "",
    *,
    wait_ms: int = 0,
    version: int = 11,
    leader_epoch: int = -1,
) -> FetchResult:
    client = await BrokerConnection.connect(TcpNetwork(), "127.0.0.1", harness._broker.port, "test")
    try:
        partition = FetchPartition(0, offset, 1 << 20, current_leader_epoch=leader_epoch)
        request = FetchRequest(wait_ms, 1, [FetchTopic(ORDERS, None, [partition])], [], rack_id=rack)
        correlation_id = client.next_correlation_id()
        frame = encode_fetch_request(correlation_id, version, "test", request)
        response = decode_fetch_response(await client.exchange(correlation_id, frame), version)
        return response.topics[0].partitions[0]
    finally:
        client.close()


def follower_high_watermark(harness: Harness) -> int:
    return harness.context.replicas._replicas[ORDERS, 0].log.high_watermark


def test_a_consumer_reads_from_an_in_sync_follower_in_its_rack(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second, _ = await started_in_racks(brokers, ["a", "b", "c"])
        await create(first, [1, 2, 3])
        for value in (b"one", b"two"):
            await first.append(ORDERS, value)
        told = await fetch(first, rack="b")
        assert (told.error_code, told.preferred_read_replica, len(told.records)) == (0, 2, 0)
        await eventually_async(lambda: follower_high_watermark(second) == 2)
        served = await fetch(second, rack="b")
        assert served.error_code == 0
        assert (served.high_watermark, served.preferred_read_replica) == (2, -1)
        at_leader = await fetch(first)
        assert bytes(memoryview(served.records)) == bytes(memoryview(at_leader.records))  # type: ignore[arg-type]
        for rack in ("", "a", "elsewhere"):
            told = await fetch(first, rack=rack)
            assert told.preferred_read_replica == -1
            assert len(told.records) > 0

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE)


@pytest.mark.slow
def test_consumer_waits_at_a_follower_for_uncommitted_records(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        await eventually_async(lambda: follower_high_watermark(second) == 1)
        waiting = asyncio.ensure_future(fetch(second, 1, "b", wait_ms=60_000))
        await eventually_async(lambda: second.context.replicas._replicas[ORDERS, 0].data_waiters.waiting)
        await first.append(ORDERS, b"two")
        served = await waiting
        assert (served.error_code, served.high_watermark) == (0, 2)
        assert len(served.records) > 0

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE)


def test_follower_never_makes_a_consumer_reset_its_offset(tmp_path: Path) -> None:
    """The leader may have an offset that a follower lacks; only offsets below the log start are out of range."""

    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        await eventually_async(lambda: follower_high_watermark(second) == 1)
        assert (await fetch(second, 9, "b")).error_code == ErrorCode.offset_not_available
        assert (await fetch(first, 9, "b")).error_code == ErrorCode.offset_out_of_range
        epoch = second.context.image.topics[ORDERS].partitions[0].leader_epoch
        newer = await fetch(second, 9, "b", leader_epoch=epoch + 1)
        assert newer.error_code == ErrorCode.unknown_leader_epoch

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE)


@pytest.mark.slow
def test_follower_out_of_sync_serves_no_consumer_and_is_never_preferred(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        await eventually_async(lambda: follower_high_watermark(second) == 1)
        await second.context.replicas._fetchers.stop()
        await first.append(ORDERS, b"two")
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1})
        await second.context.replicas.settled()
        assert (await fetch(second, rack="b")).error_code == ErrorCode.not_leader_or_follower
        assert (await fetch(first, rack="b")).preferred_read_replica == -1

    run(tmp_path, scenario, replica_selector_class=RACK_AWARE, **SHORT_LAG)


@pytest.mark.parametrize(("version", "settings"), [(11, {}), (10, {"replica_selector_class": RACK_AWARE})])
def test_follower_reads_need_the_setting_and_a_version_with_racks(
    tmp_path: Path, version: int, settings: dict[str, str]
) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started_in_racks(brokers, ["a", "b"])
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        await eventually_async(lambda: follower_high_watermark(second) == 1)
        told = await fetch(first, rack="b", version=version)
        assert (told.preferred_read_replica, len(told.records) > 0) == (-1, True)
        refused = await fetch(second, rack="b", version=version)
        assert refused.error_code == ErrorCode.not_leader_or_follower

    run(tmp_path, scenario, **settings)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.leader_not_available), (6, ErrorCode.offset_not_available)]
)
def test_new_leader_does_not_return_a_lower_high_watermark(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    """KIP-207: the high watermark is exact when the in-sync replicas have reached the start of the leader's
    epoch.
    """

    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        first = harnesses[0]
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        replica = first.context.replicas.get(ORDERS, 0)
        await harnesses[1].context.replicas._fetchers.stop()
        replica.log.high_watermark = replica.log.log_start_offset  # the follower knows of no higher one
        state = first.context.image.partition(TopicPartition(ORDERS, 0))
        assert state is not None
        in_sync = first.context.replicas._in_sync(replica, state)
        replica.become_leader(LeaderEpoch(state.leader_epoch + 1), in_sync)
        assert not replica.partition.is_caught_up

        async def listed(timestamp: int) -> ErrorCode:
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            topics = [{"name": ORDERS, "partitions": [partition]}]
            fields = {"replica_id": BrokerId(-1), "isolation_level": 0, "topics": topics}
            answer = await first.ask(2, version, fields)
            found: ErrorCode = answer.topics[0].partitions[0].error_code
            return found

        assert await listed(-1) == code
        assert await listed(0) == code
        assert await listed(-2) == ErrorCode.none

    run(tmp_path, scenario)
