"""A smaller partition count on real brokers in a simulated cluster, in scenarios that seeds show too rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import shrink_mutants as mutants
from shrinking_cluster import INDEX, PLACE, Cluster, Group, Transaction, held_writes, removes, seals

from penstock.cluster.image import PartitionPhase
from penstock.records.building import NewRecord, build_batch
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage
from support.eventually import eventually_async

ACTIVE, SEALING, SEALED = PartitionPhase.ACTIVE, PartitionPhase.SEALING, PartitionPhase.SEALED
LONG_LAG_MS, SHORT_LAG_MS = 30_000, 1_000
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "replica.socket.timeout.ms": "500",
}
LOOK_SECONDS = 2.5
"""Time in which the leader of a partition looks at it at least twice."""

Scenario = Callable[[Cluster], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(loop: SimulationLoop, trace: Trace) -> Play:
    def play(scenario: Scenario, lag_ms: int = LONG_LAG_MS) -> None:
        world = SimulatedWorld(1, loop, trace)
        ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
        settings = SETTINGS | {"replica.lag.time.max.ms": str(lag_ms)}
        members = [BrokerHost(world, node_id, settings, ensemble, 4.0) for node_id in (1, 2, 3)]
        loop.run_until_complete(scenario(Cluster(Stage(world, members, ensemble))))
        assert [problem for member in members for problem in member.problems] == []

    return play


def check_is_noticed(
    play: Play,
    scenario: Scenario,
    bug: Callable[[], AbstractContextManager[Any]],
    invariant: str,
    lag_ms: int = LONG_LAG_MS,
) -> None:
    with bug(), pytest.raises(InvariantViolated) as raised:
        play(scenario, lag_ms)
    assert raised.value.invariant == invariant, raised.value


# --- transactions


async def seal_with_an_open_transaction(cluster: Cluster) -> None:
    await cluster.start()
    transaction = Transaction(cluster)
    await transaction.begin()
    await cluster.request("seal-now")
    await cluster.look(LOOK_SECONDS)
    assert cluster.phase is SEALING
    await transaction.commit()
    await cluster.reach(SEALED)


def test_partition_is_sealed_when_its_transaction_has_ended(play: Play) -> None:
    play(seal_with_an_open_transaction)


def test_seal_with_an_open_transaction_is_noticed(play: Play) -> None:
    check_is_noticed(
        play, seal_with_an_open_transaction, mutants.sealed_with_an_open_transaction, "sealed transaction"
    )


# --- decisions of brokers with an old image


async def undo_while_a_seal_is_written(cluster: Cluster) -> None:
    """Take the change back and repeat it while the leader writes that the partition is sealed; a transaction has begun
    meanwhile.
    """
    await cluster.start()
    transaction = Transaction(cluster)
    with held_writes(cluster.leader, seals) as gate:
        await cluster.request("seal-now")
        await asyncio.sleep(LOOK_SECONDS)
        assert cluster.phase is SEALING
        await cluster.request("set", INDEX + 1)
        await transaction.begin()
        await cluster.request("seal-now")
        gate.set()
        await cluster.look(LOOK_SECONDS)
    assert cluster.phase is SEALING
    await transaction.commit()
    await cluster.reach(SEALED)


def test_seal_is_decided_again_after_another_change(play: Play) -> None:
    play(undo_while_a_seal_is_written)


def test_seal_that_was_decided_before_another_change_is_noticed(play: Play) -> None:
    check_is_noticed(
        play, undo_while_a_seal_is_written, mutants.sealed_by_an_old_decision, "sealed transaction"
    )


async def undo_while_a_removal_is_written(cluster: Cluster) -> None:
    """Take the change back while the leader removes a sealed partition, and write to the partition again."""
    await cluster.start()
    await cluster.write()
    await cluster.request("seal-now")
    await cluster.reach(SEALED)
    with held_writes(cluster.leader, removes) as gate:
        await cluster.request("drop-sealed")
        await asyncio.sleep(LOOK_SECONDS)
        await cluster.request("set", INDEX + 1)
        await cluster.write()
        gate.set()
        await cluster.look(LOOK_SECONDS)
    assert cluster.phase is ACTIVE
    await cluster.shrinker.audit()


def test_removal_is_given_up_after_another_change(play: Play) -> None:
    play(undo_while_a_removal_is_written)


def test_removal_by_a_broker_with_an_old_image_is_noticed(play: Play) -> None:
    check_is_noticed(
        play, undo_while_a_removal_is_written, mutants.removed_by_a_broker_with_an_old_image, "removal"
    )


# --- replaced leaders, and records that only the leader has


async def seal_beside_a_replaced_leader(cluster: Cluster) -> None:
    """Seal a partition whose former leader does not know that it was replaced, and write to that broker."""
    await cluster.start()
    await cluster.write()
    replaced = cluster.leader
    replaced.disconnect_store("severed")
    await eventually_async(lambda: cluster.state.leader not in (replaced.node_id, -1))
    await cluster.request("seal-now")
    await cluster.reach(SEALED)
    assert any(each.partition.is_leader for each in replaced.replicas() if each.name.partition == INDEX)
    writer = cluster.stage.connection("writer", replaced.node_id)
    await writer.connect()
    batch = bytes(build_batch([NewRecord(None, b"late", cluster.stage.now_ms())]))
    writing = asyncio.ensure_future(writer.produce(*PLACE, batch, -1, zstd=False).result())
    await cluster.look(LOOK_SECONDS)
    assert writing.done()
    assert writing.exception() is not None


def test_replaced_leader_acknowledges_no_record_after_the_seal(play: Play) -> None:
    play(seal_beside_a_replaced_leader, SHORT_LAG_MS)


def test_replaced_leader_that_takes_records_after_the_seal_is_noticed(play: Play) -> None:
    check_is_noticed(
        play,
        seal_beside_a_replaced_leader,
        mutants.replaced_leaders_take_records,
        "sealed log",
        SHORT_LAG_MS,
    )


async def seal_with_an_uncommitted_record(cluster: Cluster) -> None:
    """Seal a partition with a record that followers do not get, and crash its leader."""
    await cluster.start()
    await cluster.write()
    leader = cluster.leader
    for member in cluster.stage.members:
        if member is not leader:
            cluster.stage.world.network.part(leader.host.name, member.host.name)
    writing = asyncio.ensure_future(cluster.shrinker.produce(INDEX))
    await asyncio.sleep(0.3)
    await cluster.request("seal-now")
    await cluster.look(2 * LOOK_SECONDS)  # each look waits for reports of the other brokers in vain
    assert cluster.phase is SEALING
    await writing
    leader.crash()
    cluster.stage.world.network.heal()
    await cluster.reach(SEALED)
    await leader.start()
    await cluster.look(LOOK_SECONDS)
    await cluster.shrinker.audit()


def test_partition_is_sealed_when_its_records_are_committed(play: Play) -> None:
    play(seal_with_an_uncommitted_record)


def test_seal_before_the_last_record_is_committed_is_noticed(play: Play) -> None:
    check_is_noticed(
        play, seal_with_an_uncommitted_record, mutants.sealed_before_records_are_committed, "sealed records"
    )


def test_last_record_that_is_acknowledged_by_the_seal_and_truncated_is_noticed(play: Play) -> None:
    check_is_noticed(play, seal_with_an_uncommitted_record, mutants.seals_acknowledge_waiting_records, "I1")


# --- partitions that are created again


async def create_a_removed_partition_again(cluster: Cluster) -> None:
    await cluster.start()
    for _ in range(3):
        await cluster.write()
    await cluster.request("seal-now")
    await cluster.reach(SEALED)
    await cluster.until(cluster.shrinker.drop, "the partition is not dropped")
    await eventually_async(lambda: cluster.stage.partition(*PLACE) is None)
    await cluster.until(cluster.shrinker.grow, "the partition is not created again")
    await eventually_async(cluster.is_led)
    await cluster.write()
    await cluster.shrinker.audit()


def test_partition_that_is_created_again_uses_no_offset_twice(play: Play) -> None:
    play(create_a_removed_partition_again)


def test_partition_that_is_created_again_at_offset_0_is_noticed(play: Play) -> None:
    check_is_noticed(play, create_a_removed_partition_again, mutants.recreated_partitions_begin_at_zero, "I3")


# --- offsets of groups


async def _remove(cluster: Cluster) -> Group:
    """Remove the partition after a group has committed an offset; the coordinator crashes just before the removal."""
    await cluster.start()
    for _ in range(3):
        await cluster.write()
    group = Group(cluster)
    await group.commit()
    await cluster.request("seal-now")
    await cluster.reach(SEALED)
    with held_writes(cluster.leader, removes) as gate:
        await cluster.request("drop-sealed")
        await asyncio.sleep(LOOK_SECONDS)
        group.coordinator.crash()
        gate.set()
        await eventually_async(lambda: cluster.stage.partition(*PLACE) is None)
    return group


async def remove_a_partition_without_coordinator(cluster: Cluster) -> None:
    group = await _remove(cluster)
    await group.check_forgotten()


async def create_a_partition_again_without_coordinator(cluster: Cluster) -> None:
    group = await _remove(cluster)
    await cluster.until(cluster.shrinker.grow, "the partition is not created again")
    assert not group.coordinator.is_serving
    await group.check_forgotten()


def test_next_coordinator_forgets_offsets_of_a_removed_partition(play: Play) -> None:
    play(remove_a_partition_without_coordinator)


def test_offset_of_a_removed_partition_that_remains_is_noticed(play: Play) -> None:
    check_is_noticed(
        play,
        remove_a_partition_without_coordinator,
        mutants.offsets_of_removed_partitions_remain,
        "removed offsets",
    )


def test_next_coordinator_gives_no_old_offset_to_a_new_partition(play: Play) -> None:
    play(create_a_partition_again_without_coordinator)


def test_offset_of_a_removed_partition_that_returns_is_noticed(play: Play) -> None:
    check_is_noticed(
        play,
        create_a_partition_again_without_coordinator,
        mutants.offsets_of_removed_partitions_return,
        "removed offsets",
    )
