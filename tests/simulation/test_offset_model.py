"""The model of committed offsets: which responses it accepts, and which not."""

from __future__ import annotations

import pytest

from simulation.models.group_model import GroupModel, Place, Protocols
from simulation.models.history import InvariantViolated
from simulation.models.offset_model import OffsetModel, OffsetWrite, ShownOffset
from simulation.models.topic_model import TopicModel


@pytest.fixture
def group() -> GroupModel:
    return GroupModel("readers", Protocols.CLASSIC, ["orders"], 10_000, is_weak=False)


@pytest.fixture
def place() -> Place:
    return Place(TopicModel("orders", 1, 1, {}), 0)


@pytest.fixture
def model(group: GroupModel, place: Place) -> OffsetModel:
    return group.offset(place)


def committed(group: GroupModel, place: Place, offset: int | None, metadata: str) -> OffsetWrite:
    write = group.begin_commit(place, offset, metadata)
    write.confirm(group.now())
    return write


def read(group: GroupModel, model: OffsetModel, offset: int | None, metadata: str = "") -> None:
    began = group.now()
    model.on_read(None if offset is None else ShownOffset(offset, metadata), began, group.now())


def test_confirmed_commit_has_to_be_shown(group: GroupModel, place: Place, model: OffsetModel) -> None:
    read(group, model, None)
    committed(group, place, 5, "a/1")
    read(group, model, 5, "a/1")
    with pytest.raises(InvariantViolated, match="no offset"):
        read(group, model, None)


def test_older_commit_is_not_shown_again(group: GroupModel, place: Place, model: OffsetModel) -> None:
    committed(group, place, 5, "a/1")
    committed(group, place, 9, "a/2")
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 5, "a/1")


def test_reader_that_asked_before_may_be_shown_the_older_one(
    group: GroupModel, place: Place, model: OffsetModel
) -> None:
    committed(group, place, 5, "a/1")
    began = group.now()
    committed(group, place, 9, "a/2")
    model.on_read(ShownOffset(5, "a/1"), began, group.now())


def test_offset_without_a_commit_is_not_shown(group: GroupModel, model: OffsetModel) -> None:
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 7, "nobody/1")


def test_unknown_commit_may_come_late_or_never(group: GroupModel, place: Place, model: OffsetModel) -> None:
    group.begin_commit(place, 5, "a/1")
    committed(group, place, 9, "b/1")
    read(group, model, 9, "b/1")
    read(group, model, 5, "a/1")


def test_shown_commit_is_not_taken_back(group: GroupModel, place: Place, model: OffsetModel) -> None:
    committed(group, place, 5, "a/1")
    group.begin_commit(place, 9, "a/2")
    read(group, model, 9, "a/2")
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 5, "a/1")


def test_unknown_commit_does_not_happen_after_a_restart(
    group: GroupModel, place: Place, model: OffsetModel
) -> None:
    group.begin_commit(place, 5, "a/1")
    group.on_death()
    committed(group, place, 9, "b/1")
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 5, "a/1")


def test_refused_commit_is_never_shown(group: GroupModel, place: Place, model: OffsetModel) -> None:
    write = group.begin_commit(place, 5, "a/1")
    model.on_refusal(write)
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 5, "a/1")
    shown = group.begin_commit(place, 6, "a/2")
    read(group, model, 6, "a/2")
    with pytest.raises(InvariantViolated, match="refused"):
        model.on_refusal(shown)


def test_deleted_offset_stays_deleted(group: GroupModel, place: Place, model: OffsetModel) -> None:
    committed(group, place, 5, "a/1")
    committed(group, place, None, "admin")
    read(group, model, None)
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 5, "a/1")


def test_deleted_group_has_no_offsets_not_even_of_partitions_seen_later(
    group: GroupModel, place: Place, model: OffsetModel
) -> None:
    committed(group, place, 5, "a/1")
    group.begin_deletion("admin")  # the outcome stays unknown
    read(group, model, 5, "a/1")
    read(group, model, None)
    other = Place(TopicModel("payments", 1, 1, {}), 0)
    committed(group, other, 7, "a/2")
    read(group, group.offset(other), None)


def test_after_an_allowed_loss_an_older_commit_counts(
    group: GroupModel, place: Place, model: OffsetModel
) -> None:
    committed(group, place, 5, "a/1")
    committed(group, place, 9, "a/2")
    group.on_audit(place, ShownOffset(5, "a/1"), group.now(), is_lost=True)
    read(group, model, 5, "a/1")
    with pytest.raises(InvariantViolated, match="I12"):
        read(group, model, 9, "a/2")
