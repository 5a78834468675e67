"""Coordinators of a cluster with one broker left: writes are refused, and go on when replicas are back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from test_transactions_on_brokers import ORDERS, Cluster

from penstock.cluster.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.records.control import Marker
from penstock.state_log.partitioning import partition_of
from support.eventually import eventually_async
from support.group_wire import OFFSET_COMMIT
from support.harness import Harness
from support.transaction_wire import committed_offset, find_coordinator
from support.whole_brokers import Brokers, run

BUSY = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
}


async def settled(ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
    """Response of a coordinator that is loaded."""
    async with asyncio.timeout(20):
        while (code := await ask()) in BUSY:
            await asyncio.sleep(0.02)
    return code


async def commit_offset(broker: Harness, offset: int, group: str = "g") -> ErrorCode:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    answer = await broker.ask(
        OFFSET_COMMIT,
        7,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": ORDERS, "partitions": [partition]}],
        },
    )
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def is_committed(broker: Harness, topic: str) -> bool:
    """True when the broker knows that every record of its replicas is committed."""
    replicas = [replica for replica in broker.context.replicas if replica.name.topic == topic]
    return all(replica.log.high_watermark == replica.log.log_end_offset for replica in replicas)


def has_in_sync(broker: Harness, topic: str, count: int) -> bool:
    """True when each partition of the topic has this many in-sync replicas."""
    return {len(state.isr) for state in broker.context.image.topics[topic].partitions} == {count}


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_offsets_and_transactions_wait_for_replicas_and_then_continue(tmp_path: Path, version: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        cluster = Cluster(brokers)
        await cluster.start()
        producer = await cluster.producer(version)
        await cluster.write(producer, b"value")
        left = producer.broker
        [number] = [key for key, broker in cluster.at.items() if broker is left]
        coordinator = producer.group_coordinator
        assert coordinator is not None
        assert await settled(partial(commit_offset, coordinator, 5)) is ErrorCode.none
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            await eventually_async(partial(is_committed, left, topic))
        gone = [other for other in (1, 2, 3) if other != number]
        for other in gone:
            await cluster.brokers.stop(other)
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ORDERS):
            await eventually_async(partial(has_in_sync, left, topic, 1))

        assert await settled(lambda: commit_offset(left, 6)) is ErrorCode.coordinator_not_available
        assert await settled(lambda: producer.end(commit=True)) is ErrorCode.coordinator_not_available
        for stable in (False, True):
            assert (await committed_offset(left, "g", ORDERS, stable=stable))[0] == 5
        marker = Marker(producer.producer_id, producer.epoch, False, 1_000)
        name = TopicPartition(ORDERS, 0)
        outcome = await left.context.marker_writer.write(marker, version, [name])
        assert outcome == {name: ErrorCode.not_enough_replicas}

        for other in gone:
            cluster.at[other] = await cluster.brokers.start(other)
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ORDERS):
            await eventually_async(partial(has_in_sync, left, topic, 3))
        for ask in (lambda: commit_offset(left, 6), lambda: producer.end(commit=True)):
            async with asyncio.timeout(20):
                while (code := await settled(ask)) is ErrorCode.coordinator_not_available:
                    await asyncio.sleep(0.02)
            assert code is ErrorCode.none
        await cluster.settled()
        assert await cluster.committed() == [[b"value"]] * 3

    run(tmp_path, scenario, replica_lag_time_max_ms="30000")


def test_coordinator_elected_under_min_isr_waits_for_its_uncommitted_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        cluster = Cluster(brokers)
        await cluster.start()
        coordinator = await find_coordinator(cluster.at[1], 0, "g")
        left = cluster.at[next(number for number in (1, 2, 3) if number != coordinator)]
        [number] = [key for key, broker in cluster.at.items() if broker is left]
        topic = await eventually_async(lambda: left.context.image.topic(OFFSETS_TOPIC))
        count = len(topic.partitions)
        index = partition_of("g", count)
        replica = await eventually_async(
            lambda: left.context.replicas.get_any(OFFSETS_TOPIC, index), ignoring=BrokerError
        )
        # The high watermark stands: neither its leader nor its followers tell this replica anything.
        monkeypatch.setattr(replica, "on_leader_offsets", lambda *_: None)
        monkeypatch.setattr(replica, "on_follower_fetch", lambda *_: None)
        assert await settled(lambda: commit_offset(cluster.at[coordinator], 5)) is ErrorCode.none
        assert replica.log.high_watermark < replica.log.log_end_offset
        gone = [next(other for other in (1, 2, 3) if other not in (number, coordinator)), coordinator]
        for other in gone:
            await cluster.brokers.stop(other)
        await eventually_async(lambda: has_in_sync(left, OFFSETS_TOPIC, 1))

        assert await settled(lambda: commit_offset(left, 6)) is ErrorCode.coordinator_not_available
        groups = left.context.groups
        await eventually_async(lambda: len(groups.shards) == count - 1)
        with pytest.raises(BrokerError) as caught:
            groups.shard_of("g")
        assert caught.value.code is ErrorCode.coordinator_not_available

        monkeypatch.undo()
        for other in gone:
            cluster.at[other] = await cluster.brokers.start(other)
        await eventually_async(lambda: groups.shard_of("g"), ignoring=BrokerError)
        assert (await committed_offset(left, "g", ORDERS))[0] == 5

    run(tmp_path, scenario, replica_lag_time_max_ms="30000")
