"""Metadata while a leader is lost: at first there is no leader, then the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from test_produce_handler import batch, produce, topic

from penstock.cluster.image import (
    NO_LEADER,
    ClusterImage,
    ImageChange,
    PartitionState,
    RegisteredBroker,
    TopicImage,
)
from penstock.errors import ErrorCode
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.server.dispatch import Session
from penstock.server.lost_leaders import CLEARED_SECONDS, GONE_SECONDS, SUSPECTED_SECONDS, LostLeaders
from penstock.server.security import ANONYMOUS
from simulation.machine.loop import new_loop
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.whole_brokers import Brokers, run

ORDERS = "orders"
LED = frozenset({TopicPartition(ORDERS, 0), TopicPartition(ORDERS, 2)})


def broker(number: int) -> RegisteredBroker:
    return RegisteredBroker(BrokerId(number), f"host-{number}", 9092, BrokerEpoch(number), "machine")


def image(*numbers: int) -> ClusterImage:
    leaders = (2, 1, 2)
    states = tuple(
        PartitionState(BrokerId(leader), LeaderEpoch(0), (BrokerId(leader),), (BrokerId(leader),), 0)
        for leader in leaders
    )
    made = ClusterImage("c").with_members(map(broker, numbers), BrokerId(1))
    return made.with_topics([TopicImage(ORDERS, TopicId(UUID(int=1)), states, {}, 0)])


def in_virtual_time(scenario: Callable[[LostLeaders], Awaitable[None]]) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(scenario(LostLeaders()))
    finally:
        loop.close()


def test_partitions_of_a_suspected_broker_are_shown_without_a_leader() -> None:
    async def scenario(lost: LostLeaders) -> None:
        lost.suspect(image(1, 2), BrokerId(2))
        assert lost.leaderless("one", [ORDERS]) == lost.leaderless("one", [ORDERS]) == LED
        assert lost.leaderless("one", ["other"]) == frozenset()
        await asyncio.sleep(SUSPECTED_SECONDS + 0.01)
        assert lost.leaderless("one", [ORDERS]) == frozenset()

    in_virtual_time(scenario)


def test_broker_with_often_closed_connections_is_rarely_suspected() -> None:
    async def scenario(lost: LostLeaders) -> None:
        hidden = 0
        for _ in range(1_000):
            lost.suspect(image(1, 2), BrokerId(2))
            hidden += bool(lost.leaderless("one", [ORDERS]))
            await asyncio.sleep(CLEARED_SECONDS / 100)
        assert 0 < hidden < 1_000 * 2 * SUSPECTED_SECONDS / CLEARED_SECONDS

    in_virtual_time(scenario)


def test_lost_broker_is_shown_only_to_connections_that_were_not_told() -> None:
    async def scenario(lost: LostLeaders) -> None:
        lost.suspect(image(1, 2), BrokerId(2))
        assert lost.leaderless("told", [ORDERS]) == LED
        lost.on_image(ImageChange(image(1, 2), image(1)))
        for connection in ("told", "new"):
            assert lost.leaderless(connection, [ORDERS]) == frozenset()
        assert lost.still_shown("told") == []
        assert lost.still_shown("new") == [broker(2)]
        await asyncio.sleep(GONE_SECONDS + 0.01)
        assert lost.still_shown("new") == []

    in_virtual_time(scenario)


def test_reregistered_broker_is_shown_once() -> None:
    async def scenario(lost: LostLeaders) -> None:
        lost.on_image(ImageChange(image(1, 2), image(1)))
        lost.on_image(ImageChange(image(1), image(1, 2)))
        assert lost.still_shown("new") == []
        lost.on_image(ImageChange(image(1, 2), image(1)))
        await asyncio.sleep(GONE_SECONDS - 0.1)
        assert lost.still_shown("new") == [broker(2)]

    in_virtual_time(scenario)


@pytest.mark.parametrize("number", [3, 9])
def test_broker_without_leaderships_makes_no_partition_leaderless(number: int) -> None:
    async def scenario(lost: LostLeaders) -> None:
        lost.suspect(image(1, 2, 3), BrokerId(number))
        assert lost.leaderless("one", [ORDERS]) == frozenset()

    in_virtual_time(scenario)


# --- in whole brokers


async def metadata(harness: Harness, session: Session) -> Any:
    harness.session = session
    asked = {"topics": [{"topic_id": UUID(int=0), "name": ORDERS}], "allow_auto_topic_creation": False}
    response = await harness.ask(
        3,
        11,
        {
            **asked,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        },
    )
    [found] = response.topics
    [partition] = found.partitions
    shown = {each.node_id for each in response.brokers}
    assert len(shown) == len(response.brokers)
    return shown, partition.leader_id, partition.error_code


def shut_the_door(brokers: Brokers, number: int) -> None:
    """Disconnect a broker from the other brokers; its process keeps running."""
    acceptor = brokers.running[number]._acceptor
    acceptor.close()


async def with_a_topic(brokers: Brokers) -> dict[int, Harness]:
    """Three brokers, of which the first is the controller and the second leads."""
    harnesses = {number: await brokers.start(number) for number in (1, 2, 3)}
    await eventually_async(
        lambda: all(len(each._metadata.image.brokers) == 3 for each in brokers.running.values())
    )
    new = new_topic(ORDERS, assignments=[(0, [2, 3, 1])], configs={"min.insync.replicas": "2"})
    response = await harnesses[1].ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
    assert response.topics[0].error_code == 0
    await eventually_async(
        lambda: all(ORDERS in harness.context.image.topics for harness in harnesses.values())
    )
    return harnesses


def test_broker_wrongly_taken_for_dead_loses_no_acknowledged_write(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await with_a_topic(brokers)
        stored = 0
        for _ in range(20):
            (result,) = await produce(harnesses[2], topic(ORDERS, batch()))
            stored += result.error_code == ErrorCode.none
        shut_the_door(brokers, 2)
        for _ in range(20):
            (result,) = await produce(harnesses[2], topic(ORDERS, batch()))
            stored += result.error_code == ErrorCode.none
            if brokers.running[2].is_lost:
                break
        await eventually_async(lambda: harnesses[3].context.image.topics[ORDERS].partitions[0].leader == 3)
        await eventually_async(lambda: brokers.running[2].is_lost)
        assert 2 not in harnesses[3].context.image.brokers
        replica = harnesses[3].context.replicas.get_in_sync(ORDERS, 0)
        await eventually_async(lambda: replica.partition.is_leader)
        (result,) = await produce(harnesses[3], topic(ORDERS, batch()))
        assert result.error_code == ErrorCode.none
        assert result.base_offset >= stored

    run(tmp_path, scenario)


def test_metadata_shows_no_leader_and_then_the_next_one(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await with_a_topic(brokers)
        first = harnesses[1]
        known, late = (Session(f"client:{number}", "client", ANONYMOUS) for number in (1, 2))
        assert await metadata(first, known) == ({1, 2, 3}, 2, ErrorCode.none)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2, 3})
        shut_the_door(brokers, 2)
        # The broker has not noticed the loss when the request comes, but does before it responds.
        assert await metadata(first, known) == ({1, 2, 3}, NO_LEADER, ErrorCode.leader_not_available)
        await eventually_async(lambda: first.context.image.topics[ORDERS].partitions[0].leader == 3)
        assert await metadata(first, known) == ({1, 3}, 3, ErrorCode.none)
        assert await metadata(first, late) == ({1, 2, 3}, 3, ErrorCode.none)

    run(tmp_path, scenario)
