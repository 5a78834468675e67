from __future__ import annotations

import pytest

from penstock.cluster import znodes
from penstock.cluster.tree import PreparedWrite, TreeEntry
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.models.partition_history import PartitionHistory

PLACE = ("orders", 0)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(loop: SimulationLoop, trace: Trace, clock: Clock) -> PartitionHistory:
    return PartitionHistory(trace, clock)


def write(history: PartitionHistory, leader: int, epoch: int, isr: tuple[int, ...], writer: str = "") -> None:
    node = znodes.PartitionNode(leader, epoch, (1, 2, 3), isr)
    entry = TreeEntry(znodes.encode(node), 0, 1)
    history.on_transaction(PreparedWrite({"/topics/orders/0": entry}, [], frozenset(), 1), writer)


def problem(history: PartitionHistory) -> str:
    return "" if history.problem is None else str(history.problem)


def test_in_sync_replica_may_lead_in_a_new_epoch(history: PartitionHistory) -> None:
    write(history, 1, 0, (1, 2, 3))
    write(history, 2, 1, (2, 3))
    write(history, -1, 2, (2,))
    write(history, 2, 3, (2,))
    assert problem(history) == ""
    assert history.leader_of(PLACE, 1) == 2


def test_epoch_has_one_leader(history: PartitionHistory) -> None:
    write(history, 1, 0, (1, 2, 3))
    write(history, 2, 0, (1, 2, 3))
    assert "epoch 0 is led by 1 and by 2" in problem(history)


def test_leader_epochs_do_not_decrease(history: PartitionHistory) -> None:
    write(history, 1, 5, (1, 2, 3))
    write(history, 2, 4, (1, 2, 3))
    assert "epoch 5 is followed by 4" in problem(history)


def test_leader_comes_from_the_in_sync_set(history: PartitionHistory) -> None:
    write(history, 1, 0, (1, 2))
    write(history, 3, 1, (1, 2, 3))
    assert "3 was elected" in problem(history)


def test_leader_is_in_sync_with_itself(history: PartitionHistory) -> None:
    write(history, 1, 0, (2, 3))
    assert "its leader 1 is not in sync" in problem(history)


def test_deleted_partition_may_begin_anew(history: PartitionHistory) -> None:
    write(history, 1, 7, (1, 2, 3))
    history.on_transaction(PreparedWrite({"/topics/orders/0": None}, [], frozenset(), 2), "")
    assert PLACE not in history.now
    write(history, 2, 0, (1, 2, 3))
    assert problem(history) == ""


def test_largest_in_sync_set_includes_the_one_at_the_start(history: PartitionHistory, clock: Clock) -> None:
    for clock.seconds, isr in ((1.0, (1, 2, 3)), (2.0, (1,)), (3.0, (1, 2))):
        write(history, 1, 0, isr)
    assert history.most_in_sync(PLACE, 1.5) == 3
    assert history.most_in_sync(PLACE, 2.5) == 2
    assert history.most_in_sync(PLACE, 4.0) == 2
    assert history.most_in_sync(("other", 0), 0.0) == 0


def test_writer_of_a_sole_member_set_is_recorded(history: PartitionHistory) -> None:
    write(history, 1, 0, (1, 2), "broker-1/1")
    write(history, 1, 0, (1,), "broker-2/4")
    assert history.left_alone_by[PLACE] == "broker-2/4"
