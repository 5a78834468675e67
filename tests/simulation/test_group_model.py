"""The model of groups: each partition has one owner, and generations do not decrease."""

from __future__ import annotations

import pytest

from simulation.models.group_model import GroupModel, Lease, Place, Protocols
from simulation.models.history import InvariantViolated
from simulation.models.topic_model import TopicModel

PLACE = Place(TopicModel("orders", 1, 2, {}), 0)


def make(protocols: Protocols = Protocols.CLASSIC) -> GroupModel:
    return GroupModel("readers", protocols, ["orders"], 10_000, is_weak=False)


def holding(group: GroupModel, owner: str, until: float) -> Lease:
    lease = group.lease(owner)
    lease.ends = until
    group.take(lease, [PLACE], 0.0)
    return lease


def test_owned_partition_is_not_assigned_to_another_member() -> None:
    group = make()
    holding(group, "one", until=10.0)
    with pytest.raises(InvariantViolated, match="one has not given it up"):
        group.take(group.lease("two"), [PLACE], 9.0)


def test_partition_may_be_assigned_after_the_lease_of_its_owner() -> None:
    group = make()
    holding(group, "one", until=10.0)
    group.take(group.lease("two"), [PLACE], 10.0)


def test_revoked_partition_may_be_assigned() -> None:
    group = make()
    first = holding(group, "one", until=10.0)
    first.places.clear()
    second = holding(group, "two", until=10.0)
    group.end_lease(second)
    holding(group, "three", until=10.0)


def test_partition_has_one_owner_in_a_generation() -> None:
    group = make()
    group.on_generation(4, "one", [PLACE])
    group.on_generation(5, "two", [PLACE])
    with pytest.raises(InvariantViolated, match="one owner"):
        group.on_generation(5, "one", [PLACE])


def test_generations_do_not_decrease_while_the_group_has_offsets() -> None:
    group = make()
    group.on_generation(5, "one", [])
    group.on_generation(2, "one", [])  # no commit is known: the coordinator may have forgotten the group
    group.begin_commit(PLACE, 3, "one/1").confirm(group.now())
    with pytest.raises(InvariantViolated, match="generation"):
        group.on_generation(1, "one", [])


def test_generations_begin_anew_when_the_group_was_deleted() -> None:
    group = make()
    group.begin_commit(PLACE, 3, "one/1").confirm(group.now())
    group.on_generation(5, "one", [])
    group.end_deletion(group.begin_deletion("admin"), done=True)
    group.on_generation(1, "two", [PLACE])
    assert group.generation == 1, "commits of the new generation are compared with it"


def test_member_epochs_do_not_decrease() -> None:
    group = make(Protocols.CONSUMER)
    group.on_epoch(5, 0, "one")
    group.on_epoch(5, 4, "one")
    with pytest.raises(InvariantViolated, match="generation"):
        group.on_epoch(3, 5, "one")


def test_commit_of_an_earlier_generation_is_a_violation() -> None:
    group = make()
    group.check_commit(5, 5, "one")
    with pytest.raises(InvariantViolated, match="fencing"):
        group.check_commit(4, 5, "one")
