"""Writes of in-sync sets: conditional on the partition epoch, and on the broker epoch of each added replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from node import ClusterNode

from penstock.cluster.image import PartitionState
from penstock.cluster.memory import MemoryEnsemble
from penstock.cluster.topics import CreatableTopic
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from penstock.replication.in_sync import InSyncChange
from penstock.replication.in_sync_store import RecordedInSync
from penstock.replication.in_sync_writer import InSyncOutcome, InSyncWrite, WriteResult

LEADER, FOLLOWER = BrokerId(1), BrokerId(2)


class Pair:
    """Broker 1 leads two partitions with broker 2 as a follower that is not in sync."""

    def __init__(self, ensemble: MemoryEnsemble, leader: ClusterNode, follower: ClusterNode) -> None:
        self.ensemble = ensemble
        self.leader = leader
        self.follower = follower
        self.store = RecordedInSync(leader.changes, LEADER)

    @property
    def state(self) -> PartitionState:
        return self.leader.metadata.image.topics["orders"].partitions[0]

    @property
    def follower_epoch(self) -> BrokerEpoch:
        return self.leader.metadata.image.brokers[FOLLOWER].epoch

    def write_of(self, index: int, *members: BrokerId, epoch: BrokerEpoch | None = None) -> InSyncWrite:
        topic = self.leader.metadata.image.topics["orders"]
        state = topic.partitions[index]
        life = self.follower_epoch if epoch is None else epoch
        joining = {FOLLOWER: life} if FOLLOWER in members and FOLLOWER not in state.isr else {}
        change = InSyncChange(frozenset(members), state.partition_epoch, None, joining)
        return InSyncWrite(TopicPartition("orders", index), topic.id, state.leader_epoch, change)

    async def record(self, *members: BrokerId) -> InSyncOutcome:
        [outcome] = await self.store.write_in_sync([self.write_of(0, *members)])
        return outcome


def run(scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = []
        for number in (LEADER, FOLLOWER):
            store = ensemble.client()
            await store.start()
            nodes.append(await ClusterNode(store, number, seed=number).start())
        pair = Pair(ensemble, *nodes)
        await pair.leader.metadata.reread_members()
        await pair.leader.administration.create_topics(
            [CreatableTopic("orders", assignment=[(0, [1, 2]), (1, [1, 2])])]
        )
        for index in range(2):
            [made] = await pair.store.write_in_sync([pair.write_of(index, LEADER)])
            assert made.result is WriteResult.RECORDED
        await scenario(pair)
        for node in nodes:
            await node.stop()

    asyncio.run(body())


def test_in_sync_set_is_recorded_and_in_the_leaders_image() -> None:
    async def scenario(pair: Pair) -> None:
        before = pair.state.partition_epoch
        assert await pair.record(LEADER, FOLLOWER) == InSyncOutcome(WriteResult.RECORDED, before + 1)
        assert pair.state.isr == (LEADER, FOLLOWER)
        assert pair.state.partition_epoch == before + 1

    run(scenario)


def test_outdated_in_sync_set_is_refused_without_a_write() -> None:
    async def scenario(pair: Pair) -> None:
        late = pair.write_of(0, LEADER, FOLLOWER)
        await pair.record(LEADER, FOLLOWER)
        await pair.record(LEADER)
        version = pair.state.partition_epoch
        assert await pair.store.write_in_sync([late]) == [InSyncOutcome(WriteResult.REFUSED)]
        assert pair.state.partition_epoch == version

    run(scenario)


@pytest.mark.parametrize("leader_epoch", [-1, 1])
def test_broker_that_does_not_lead_in_this_epoch_records_nothing(leader_epoch: int) -> None:
    async def scenario(pair: Pair) -> None:
        right = pair.write_of(0, LEADER, FOLLOWER)
        epoch = LeaderEpoch(right.leader_epoch + leader_epoch)
        wrong = InSyncWrite(right.name, right.topic_id, epoch, right.change)
        assert await pair.store.write_in_sync([wrong]) == [InSyncOutcome(WriteResult.REFUSED)]
        other = RecordedInSync(pair.leader.changes, FOLLOWER)
        assert await other.write_in_sync([right]) == [InSyncOutcome(WriteResult.REFUSED)]
        assert pair.state.isr == (LEADER,)

    run(scenario)


def test_follower_with_newer_broker_epoch_is_not_added() -> None:
    async def scenario(pair: Pair) -> None:
        known = pair.write_of(0, LEADER, FOLLOWER)
        await pair.follower.register()
        [outcome] = await pair.store.write_in_sync([known])
        assert outcome.result is not WriteResult.RECORDED
        await pair.leader.metadata.reload()
        assert pair.state.isr == (LEADER,)

    run(scenario)


def test_registering_follower_is_not_added_and_blocks_no_other() -> None:
    """Broker 2 has crashed, its registration still exists, and it has already looked for in-sync sets to
    leave.
    """

    async def scenario(pair: Pair) -> None:
        await pair.record(LEADER, FOLLOWER)
        await pair.follower.membership._invalidate_last_registration()
        joins, leaves = pair.write_of(1, LEADER, FOLLOWER), pair.write_of(0, LEADER)
        outcomes = await pair.store.write_in_sync([joins, leaves])
        assert [outcome.result for outcome in outcomes] == [WriteResult.UNKNOWN, WriteResult.RECORDED]
        await pair.leader.metadata.reload()
        states = pair.leader.metadata.image.topics["orders"].partitions
        assert [state.isr for state in states] == [(LEADER,), (LEADER,)]

    run(scenario)


def test_follower_added_before_it_registers_again_removes_itself() -> None:
    async def scenario(pair: Pair) -> None:
        assert (await pair.record(LEADER, FOLLOWER)).result is WriteResult.RECORDED
        await pair.follower.register()
        await pair.leader.metadata.catch_up()
        assert pair.state.isr == (LEADER,)

    run(scenario)
