"""Registration: after an unclean stop a broker gives up what it may have lost before it registers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest
from node import ClusterNode

from penstock.cluster import znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.coordination import Set
from penstock.cluster.image import NO_LEADER, ImageChange, PartitionState
from penstock.cluster.loading import encode_partition, load_image
from penstock.cluster.memory import Faults, MemoryEnsemble
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.topic_writes import Writes
from penstock.cluster.topics import CreatableTopic
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch

Scenario = Callable[[MemoryEnsemble, BrokerEpoch], Awaitable[None]]


async def opened(ensemble: MemoryEnsemble, number: int) -> ClusterNode:
    store = ensemble.client()
    await store.start()
    node = ClusterNode(store, BrokerId(number), seed=number)
    await node.load()
    return node


def run(scenario: Scenario) -> None:
    """Broker 1 was registered together with broker 2 and is offline now; broker 2 is alive."""

    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await opened(ensemble, 1), await opened(ensemble, 2)
        epoch = await first.register()
        await second.register()
        await first.metadata.reread_members()
        await first.administration.create_topics(
            [
                CreatableTopic("both", assignment=[(0, [1, 2]), (1, [2, 1])]),
                CreatableTopic("alone", assignment=[(0, [1])]),
            ]
        )
        await first.stop()
        await first.store.close()
        await scenario(ensemble, epoch)
        await second.stop()

    asyncio.run(body())


async def states(node: ClusterNode) -> tuple[PartitionState, PartitionState, PartitionState]:
    image = await load_image(node.store)
    first, second = image.topics["both"].partitions
    return first, second, image.topics["alone"].partitions[0]


def test_clean_stop_keeps_in_sync_sets() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        before = await states(node)
        assert await node.register(clean_epoch=epoch) > epoch
        assert await states(node) == before
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("mark", [None, BrokerEpoch(0), BrokerEpoch(99)])
def test_unclean_stop_leaves_shared_in_sync_sets(
    mark: BrokerEpoch | None,
) -> None:
    async def scenario(ensemble: MemoryEnsemble, _: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        led, followed, alone = await states(node)
        await node.register(clean_epoch=mark)
        led_now, followed_now, alone_now = await states(node)
        assert (led_now.leader, led_now.isr, led_now.leader_epoch) == (2, (2,), led.leader_epoch + 1)
        assert (followed_now.leader, followed_now.isr) == (2, (2,))
        assert followed_now.leader_epoch == followed.leader_epoch
        assert alone_now == alone
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("is_resort_lost", [False, True])
def test_power_loss_beside_lost_disk_keeps_remaining_replica(is_resort_lost: bool) -> None:
    """Broker 2 has lost its disk and not registered yet when broker 1 returns without its last records."""

    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        others = await opened(ensemble, 3)
        await others.store.delete(znodes.broker_path(BrokerId(2)))
        first = await opened(ensemble, 1)
        await first.register()
        led, _, _ = await states(first)
        assert (led.leader, led.isr, led.last_resort) == (NO_LEADER, (2,), (1,))
        if is_resort_lost:
            first = await opened(ensemble, 1)
            await first.store.delete(znodes.broker_path(BrokerId(1)))
            await first.register(directory=99, has_logs=False)
        second = await opened(ensemble, 2)
        await second.register(directory=98, has_logs=False)
        led, _, _ = await states(second)
        assert (led.isr, led.last_resort) == (() if is_resort_lost else (1,), ())
        for node in (others, first, second):
            await node.stop()

    run(scenario)


def test_broker_crash_without_power_loss_stays_in_sync() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        before = await states(node)
        assert await node.register(kept_epoch=epoch) > epoch
        assert await states(node) == before
        await node.stop()

    run(scenario)


def test_directory_of_earlier_registration_is_not_complete() -> None:
    """The directory was moved away, another one was used in its place, and it returned in the same boot."""

    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        await node.register(kept_epoch=BrokerEpoch(epoch - 1))
        led, followed, _ = await states(node)
        assert (led.isr, followed.isr) == ((2,), (2,))
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("was_whole", [True, False])
def test_broker_killed_before_it_recorded_its_registration_stays_in_sync(was_whole: bool) -> None:
    """Exception: the last registration was the one that reported a loss."""

    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        before = await states(node)
        await node.register(kept_epoch=epoch if was_whole else None)
        await node.store.delete(znodes.broker_path(BrokerId(1)))
        again = await opened(ensemble, 1)
        await again.register(kept_epoch=epoch)
        assert (await states(again) == before) == was_whole
        for each in (node, again):
            await each.stop()

    run(scenario)


def test_kept_epoch_of_another_disk_is_ignored() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        await node.register(directory=99, kept_epoch=epoch)
        led, followed, _ = await states(node)
        assert (led.isr, followed.isr) == ((2,), (2,))
        await node.stop()

    run(scenario)


def test_another_disk_leaves_in_sync_sets_it_was_alone_in() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        await node.register(directory=77, clean_epoch=None, has_logs=False)
        led, followed, alone = await states(node)
        assert (alone.leader, alone.isr) == (NO_LEADER, ())
        assert led.isr == followed.isr == (2,)
        await node.membership.take_leadership()
        assert (await states(node))[2] == alone, "until an operator decides"
        await node.stop()

    run(scenario)


def test_directory_with_new_id_stays_where_it_was_alone() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        before = await states(node)
        await node.register(directory=77, has_logs=True)
        assert (await states(node))[2] == before[2]
        await node.stop()

    run(scenario)


def test_in_sync_sets_shrink_before_registration() -> None:
    async def scenario(ensemble: MemoryEnsemble, _: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        seen: list[list[str]] = []

        def on_change(change: ImageChange) -> None:
            if change.topics:
                seen.append(ensemble.tree.children(znodes.BROKER_IDS))

        node.metadata.subscribe(on_change)
        await node.register()
        assert seen == [["2"]]
        await node.stop()

    run(scenario)


def test_started_broker_leads_only_partitions_without_leader() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        node = await opened(ensemble, 1)
        offline = PartitionState(NO_LEADER, LeaderEpoch(5), (BrokerId(1),), (BrokerId(1),), 0)
        await node.store.multi([Set(znodes.partition_path("alone", 0), encode_partition(offline))])
        await node.metadata.reload()
        await node.register(clean_epoch=epoch)
        await node.membership.take_leadership()
        led, followed, alone = await states(node)
        assert (alone.leader, alone.leader_epoch) == (1, 6)
        assert (led.leader, led.leader_epoch) == (1, 1)
        assert (followed.leader, followed.leader_epoch) == (2, 0)
        await node.stop()

    run(scenario)


def test_stale_registration_is_replaced_and_foreign_one_is_not() -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        stale, again, foreign = [await opened(ensemble, 1) for _ in range(3)]
        await stale.register()
        newer = await again.register()
        assert again.metadata.image.brokers[BrokerId(1)].epoch == newer
        with pytest.raises(BrokerError) as refusal:
            await foreign.register(directory=77)
        assert refusal.value.code is ErrorCode.duplicate_broker_registration
        stale.store.expire()  # type: ignore[attr-defined]
        assert ensemble.tree.children(znodes.BROKER_IDS) == ["1", "2"]
        for node in (stale, again, foreign):
            await node.stop()

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_unknown_outcome_gives_no_broker_epoch_twice(seed: int) -> None:
    async def scenario(ensemble: MemoryEnsemble, epoch: BrokerEpoch) -> None:
        given = [epoch]
        for _ in range(5):
            node = await opened(ensemble, 1)
            node.store.faults = Faults(Random(seed), unknown_applied=0.3, unknown_not_applied=0.3)  # type: ignore[attr-defined]
            given.append(await node.register())
            await node.stop()
            assert (await load_image(node.store)).brokers[BrokerId(1)].epoch == given[-1]
        assert sorted(set(given)) == given

    run(scenario)


def test_alive_brokers_remove_broker_after_power_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The alive brokers fsync first. Until then the broker is not registered, so that it cannot be elected."""
    monkeypatch.setattr("penstock.cluster.membership.REMOVAL_WAIT_SECONDS", 10.0)

    async def body() -> None:
        ensemble = MemoryEnsemble()
        first, second = await opened(ensemble, 1), await opened(ensemble, 2)
        await first.register()
        await second.register()
        await second.metadata.reread_members()
        await second.administration.create_topics([CreatableTopic("both", assignment=[(0, [2, 1])])])
        again = await opened(ensemble, 1)
        registering = asyncio.create_task(again.register())
        await second.metadata.until(lambda image: 1 not in image.brokers)
        [state] = second.metadata.image.topics["both"].partitions
        assert state.isr == (2, 1)
        assert not registering.done()
        changed = replace(state, isr=(BrokerId(2),))
        writes = Writes(
            (Set(znodes.partition_path("both", 0), encode_partition(changed), state.partition_epoch),)
        )
        await second.changes.make(
            lambda image: MetadataChange(
                None,
                writes if image.topics["both"].partitions[0] == state else Writes(),
                Scope(partitions={"both": (0,)}),
            )
        )
        await registering
        image = await load_image(second.store)
        assert image.topics["both"].partitions[0] == replace(
            changed, partition_epoch=state.partition_epoch + 1
        )
        for node in (first, second, again):
            await node.stop()

    asyncio.run(body())
