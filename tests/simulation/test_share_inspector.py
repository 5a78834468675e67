"""The check of start offsets of share-partitions, while an administrator resets them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.queues.share_partition import SharePartition
from penstock.queues.states import ShareSettings
from simulation.models.history import InvariantViolated
from simulation.models.share_model import ShareModel
from simulation.shares.share_inspector import ShareInspector

PLACE = ("work", 0)
OLD, NEW = 3, 5
"""State epochs before and after a reset."""


class Leader:
    """A share-partition that its leader has loaded."""

    def __init__(self, start: int, state_epoch: int) -> None:
        self.leader_epoch = 0
        self.partition = SharePartition(start, ShareSettings())
        self._writer = SimpleNamespace(_epochs=(state_epoch, 0), _on_written=lambda: None)
        self.replica = SimpleNamespace(log=SimpleNamespace(log_start_offset=0))


class Watched:
    """A group that has settled none of a hundred records, and its inspector."""

    def __init__(self) -> None:
        self.model = ShareModel("workers", self.deleted_before, is_committed=False, now=lambda: 0.0)
        self.model.limits.add(5)
        self.model.add(PLACE)
        self.topic = SimpleNamespace(id=1, written={PLACE: set(range(100))}, deleted_before={})
        self.all: list[Any] = []
        loop = SimpleNamespace(time=lambda: 0.0)
        stage: Any = SimpleNamespace(world=SimpleNamespace(loop=loop))
        group: Any = self
        self.inspector = ShareInspector(stage, [group])

    def deleted_before(self, _: object) -> int:
        return 0

    def leaders(self) -> list[tuple[tuple[str, int], Any]]:
        return [(PLACE, leader) for leader in self.all]

    def look(self, *leaders: Leader) -> None:
        self.all = list(leaders)
        self.inspector.look()

    def refuses(self, *leaders: Leader) -> None:
        with pytest.raises(InvariantViolated, match="Q5"):
            self.look(*leaders)


def test_new_leader_may_load_a_reset_before_its_response() -> None:
    watched = Watched()
    watched.look(Leader(0, OLD))
    watched.model.begin_reset({PLACE: 76})
    watched.look(Leader(76, NEW))


def test_first_leader_may_load_a_reset_before_its_response() -> None:
    watched = Watched()
    watched.model.begin_reset({PLACE: 76})
    watched.look(Leader(76, NEW))


def test_reset_explains_no_record_at_or_behind_its_start() -> None:
    watched = Watched()
    watched.model.begin_reset({PLACE: 76})
    watched.refuses(Leader(77, NEW))


def test_reset_explains_no_start_of_a_state_from_before() -> None:
    watched = Watched()
    watched.look(Leader(0, OLD))
    watched.model.begin_reset({PLACE: 76})
    watched.refuses(Leader(76, OLD))


def test_reset_moves_no_leader_that_loaded_the_state_before() -> None:
    watched = Watched()
    leader = Leader(0, OLD)
    watched.look(leader)
    watched.model.begin_reset({PLACE: 76})
    leader.partition.start_offset = 76
    watched.refuses(leader)


def test_leader_of_a_reset_is_checked_after_the_response() -> None:
    watched = Watched()
    watched.model.begin_reset({PLACE: 76})
    leader: Any = Leader(76, NEW)
    watched.look(leader)
    watched.model.reset(PLACE, 76, [leader])
    watched.look(leader)
    leader.partition.start_offset = 77
    watched.refuses(leader)


def test_refused_reset_explains_nothing() -> None:
    watched = Watched()
    watched.model.begin_reset({PLACE: 76})
    assert not watched.model.refuse_reset({PLACE: 76})
    watched.refuses(Leader(76, NEW))


def test_earlier_reset_of_unknown_outcome_is_reported_with_a_refusal() -> None:
    watched = Watched()
    watched.model.begin_reset({PLACE: 76})
    watched.model.begin_reset({PLACE: 20})
    assert watched.model.refuse_reset({PLACE: 20})
    watched.look(Leader(76, NEW))
