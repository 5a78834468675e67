"""Elected controller: one at a time, replaced when it ends, and without writes once fenced (T18 in
docs/faults.md).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from node import ClusterNode

from penstock.cluster import znodes
from penstock.cluster.change_list import ChangeList, Scope
from penstock.cluster.controller_election import become_controller
from penstock.cluster.coordination import Check, Node, Set
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.cluster.loading import encode_partition, load_image
from penstock.cluster.memory import MemoryEnsemble, MemoryStore
from penstock.cluster.topics import CreatableTopic
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch
from support.eventually import eventually_async


async def started(ensemble: MemoryEnsemble, number: int) -> ClusterNode:
    store = ensemble.client()
    await store.start()
    return await ClusterNode(store, BrokerId(number), seed=number).start()


def partition_of(node: ClusterNode, topic: str = "a") -> PartitionState:
    return node.metadata.image.topics[topic].partitions[0]


async def kill(node: ClusterNode) -> None:
    await node.stop()
    node.store.expire()  # type: ignore[attr-defined]


def test_dead_leader_is_replaced_from_in_sync_set() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = {number: await started(ensemble, number) for number in (1, 2, 3)}
        await nodes[1].metadata.reread_members()
        await nodes[1].administration.create_topics([CreatableTopic("a", assignment=[(0, [2, 3, 1])])])
        before = partition_of(nodes[1])
        await kill(nodes[2])
        await eventually_async(lambda: partition_of(nodes[1]).leader == 3)
        after = partition_of(nodes[1])
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.isr == before.isr
        for node in nodes.values():
            await node.stop()

    asyncio.run(body())


def test_partition_without_alive_member_waits_for_one() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await started(ensemble, 1), await started(ensemble, 2)
        await first.metadata.reread_members()
        await first.administration.create_topics([CreatableTopic("a", assignment=[(0, [2])])])
        await kill(second)
        await eventually_async(lambda: partition_of(first).leader == NO_LEADER)
        epoch = partition_of(first).leader_epoch
        second = await started(ensemble, 2)
        await eventually_async(lambda: partition_of(first).leader == 2)
        assert partition_of(first).leader_epoch > epoch
        assert partition_of(first).isr == (2,)
        await first.stop()
        await second.stop()

    asyncio.run(body())


def test_new_controller_elects_leaders_for_the_dead_one() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await started(ensemble, 1), await started(ensemble, 2)
        await first.metadata.reread_members()
        await first.administration.create_topics([CreatableTopic("a", assignment=[(0, [1, 2])])])
        await kill(first)
        await eventually_async(
            lambda: second.metadata.image.controller_id == 2 and partition_of(second).leader == 2
        )
        await second.stop()

    asyncio.run(body())


def test_controller_that_vanished_unseen_is_replaced() -> None:
    """The image of the broker that lost the election does not change, so only the broker itself can stand
    again.
    """

    class FleetingRival(MemoryStore):
        """Controller that exists just when the other broker reads the node."""

        has_rival = False

        async def get(self, path: str) -> Node:
            if path == znodes.CONTROLLER and self.has_rival:
                self.has_rival = False
                return Node(znodes.encode(znodes.ControllerNode(9, 1)), 0, 1, True)
            return await super().get(path)

    async def body() -> None:
        store = FleetingRival(MemoryEnsemble())
        await store.start()
        store.has_rival = True
        node = await ClusterNode(store).start()
        await eventually_async(lambda: node.metadata.image.controller_id == 1)
        await node.stop()

    asyncio.run(body())


def test_fenced_controller_writes_nothing() -> None:
    asyncio.run(_replaced_in_the_middle())


def test_missing_controller_fence_is_noticed() -> None:
    commit = ChangeList.commit

    async def unfenced(self: ChangeList, operations: Any, scope: Scope, fence: Check | None = None) -> Any:
        return await commit(self, operations, scope)

    with (
        patch.object(ChangeList, "commit", unfenced),
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        asyncio.run(_replaced_in_the_middle())


async def _replaced_in_the_middle() -> None:
    """T18: a controller hangs in the middle of its work, another one is elected, and the first continues."""
    ensemble = MemoryEnsemble()
    first, second = await started(ensemble, 1), await started(ensemble, 2)
    await first.metadata.reread_members()
    await first.administration.create_topics([CreatableTopic("a", assignment=[(0, [1, 2])])])
    office = await become_controller(first.store, BrokerId(1))
    await first.stop()
    await first.store.delete(znodes.CONTROLLER)
    await eventually_async(lambda: second.metadata.image.controller_id == 2)
    stale = ClusterNode(first.store, BrokerId(1))
    await stale.metadata.load()
    rule = partial(_give_to, broker=BrokerId(1))
    with pytest.raises(BrokerError) as refusal:
        await stale.changes.rule(rule, ["a"], Check(znodes.CONTROLLER_EPOCH, office.epoch_version))
    assert refusal.value.code is ErrorCode.not_controller
    assert partition_of(second) == (await load_image(first.store)).topics["a"].partitions[0]
    assert partition_of(second).leader_epoch == 0
    await stale.stop()
    await second.stop()


def _give_to(_: object, name: object, partition: PartitionState, broker: BrokerId) -> PartitionState:
    return replace(partition, leader=broker)


def test_stopping_broker_hands_over_leadership_first() -> None:
    """The stopping broker leaves the in-sync set too, unless one machine would remain: the leader has to
    write that.
    """

    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = [await started(ensemble, number) for number in (1, 2, 3)]
        first, second, _ = nodes
        for node in nodes:
            await node.metadata.reread_members()
        await first.administration.create_topics(
            [
                CreatableTopic("a", assignment=[(0, [2, 1, 3]), (1, [1, 2, 3])]),
                CreatableTopic("two", assignment=[(0, [2, 1])]),
                CreatableTopic("alone", assignment=[(0, [2])]),
            ]
        )
        await second.metadata.catch_up()
        async with asyncio.timeout(10):
            await second.membership.leave()
        led, followed = second.metadata.image.topics["a"].partitions
        assert (led.leader, led.isr, led.leader_epoch) == (1, (1, 3), 1)
        assert (followed.leader, followed.isr, followed.leader_epoch) == (1, (1, 3), 0)
        assert (partition_of(second, "two").leader, partition_of(second, "two").isr) == (1, (2, 1))
        assert partition_of(second, "alone").leader == 2
        for node in nodes:
            await node.stop()

    asyncio.run(body())


def test_controller_can_stop_cleanly() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await started(ensemble, 1), await started(ensemble, 2)
        await first.metadata.reread_members()
        await first.administration.create_topics([CreatableTopic("a", assignment=[(0, [1, 2])])])
        async with asyncio.timeout(10):
            await first.membership.leave()
        assert partition_of(first).leader == 2
        await first.stop()
        await second.stop()

    asyncio.run(body())


@pytest.mark.slow
def test_the_preferred_leader_leads_again_when_it_is_in_sync() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client()
        await store.start()
        config = BrokerConfig({"leader.imbalance.check.interval.seconds": "1"})
        first = await ClusterNode(store, BrokerId(1), config=config).start()
        second = await started(ensemble, 2)
        await first.metadata.reread_members()
        await first.administration.create_topics([CreatableTopic("a", assignment=[(0, [2, 1]), (1, [2, 1])])])
        state = PartitionState(BrokerId(1), LeaderEpoch(3), (BrokerId(2), BrokerId(1)), (BrokerId(1),), 0)
        in_sync = replace(state, isr=(BrokerId(1), BrokerId(2)))
        for index, written in enumerate((state, in_sync)):
            await store.multi([Set(znodes.partition_path("a", index), encode_partition(written))])
        await first.metadata.reload()
        await eventually_async(lambda: first.metadata.image.topics["a"].partitions[1].leader == 2)
        behind, back = first.metadata.image.topics["a"].partitions
        assert (behind.leader, behind.leader_epoch) == (1, 3)
        assert back.leader_epoch == 4
        await first.stop()
        await second.stop()

    asyncio.run(body())


def test_a_thousand_leaders_change_with_two_writes() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await started(ensemble, 1), await started(ensemble, 2)
        await first.metadata.reread_members()
        await first.administration.create_topics(
            [CreatableTopic("a", assignment=[(n, [2, 1]) for n in range(1_000)])]
        )
        entries = ensemble.tree.children(znodes.CHANGES)
        await kill(second)
        await eventually_async(
            lambda: all(p.leader == 1 for p in first.metadata.image.topics["a"].partitions)
        )
        assert len(ensemble.tree.children(znodes.CHANGES)) - len(entries) == 2
        await first.stop()

    asyncio.run(body())
