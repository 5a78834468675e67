from __future__ import annotations

import pytest

from penstock.cluster import znodes
from simulation.faults.survival import Survival
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.machine import SimulatedMachine
from simulation.machine.trace import Trace
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

PLACE = ("orders", 0)


@pytest.fixture
def stage(loop: SimulationLoop, trace: Trace) -> Stage:
    """Brokers 1 and 2 share a machine."""
    world = SimulatedWorld(1, loop, trace)
    ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
    machine = SimulatedMachine("machine", loop.time)
    members = [
        BrokerHost(world, node_id, {}, ensemble, 2.0, machine if node_id < 3 else None)
        for node_id in (1, 2, 3)
    ]
    for member in members[:2]:
        member.machine_members = tuple(members[:2])
    return Stage(world, members, ensemble)


def record(stage: Stage, *isr: int, eligible: tuple[int, ...] = ()) -> None:
    stage.history.now[PLACE] = znodes.PartitionNode(isr[0], 0, (1, 2, 3), isr, eligible=eligible)


def test_machine_with_the_only_unsynced_records_keeps_its_power(stage: Stage) -> None:
    record(stage, 1, 2, 3)
    assert Survival(stage, "auto").may_lose_power(stage.member(1))
    stage.member(3).is_suspect = True
    assert not Survival(stage, "auto").may_lose_power(stage.member(1))
    assert Survival(stage, "fsync").may_lose_power(stage.member(1))


def test_machine_alone_in_sync_has_fsynced_and_may_lose_its_power(stage: Stage) -> None:
    record(stage, 1, 2)
    assert Survival(stage, "auto").may_lose_power(stage.member(1))
    assert not Survival(stage, "os").may_lose_power(stage.member(1))
    stage.history.left_alone_by[PLACE] = "broker-3/1"
    assert not Survival(stage, "auto").may_lose_power(stage.member(1))


def test_replica_is_lost_only_while_another_in_sync_replica_is_complete(stage: Stage) -> None:
    survival = Survival(stage, "fsync")
    record(stage, 1, 2)
    assert survival.may_lose_copy(stage.member(1))
    record(stage, 1)
    assert not survival.may_lose_copy(stage.member(1))


def test_last_in_sync_replica_is_lost_only_while_an_eligible_leader_is_complete(stage: Stage) -> None:
    survival = Survival(stage, "auto")
    record(stage, 1, eligible=(3,))
    assert survival.may_lose_copy(stage.member(1))
    assert survival.may_lose_copy(stage.member(3))
    stage.member(3).is_suspect = True
    assert not survival.may_lose_copy(stage.member(1))
    stage.member(3).is_suspect, stage.member(1).is_suspect = False, True
    assert not survival.may_lose_copy(stage.member(3))


def test_replicas_that_a_damaged_one_is_repaired_from_are_kept(stage: Stage) -> None:
    survival = Survival(stage, "fsync")
    record(stage, 1, 2, 3)
    survival.damaged_places = lambda: {PLACE: stage.member(1)}
    assert survival.may_lose_copy(stage.member(1))
    assert not survival.may_lose_copy(stage.member(2))
