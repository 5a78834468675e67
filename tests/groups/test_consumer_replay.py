"""Replays of consumer groups from logs that compaction, or reading in parts, has left with gaps."""

from __future__ import annotations

from uuid import UUID

from consumer_driver import image_of, settings_of
from group_log import GROUP

from penstock.groups.consumer.state import ConsumerState
from penstock.groups.records import (
    Assignment,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    MemberState,
)
from penstock.model import TopicId

FOO = TopicId(UUID(int=1))
BAR = TopicId(UUID(int=2))


def said(member_id: str) -> GroupRecord:
    value = ConsumerMemberValue(None, None, "c", "h", frozenset({"foo"}), None, 1, None, None)
    return GroupRecord(ConsumerMemberKey(GROUP, member_id), value)


def owns(member_id: str, assigned: Assignment) -> GroupRecord:
    value = CurrentAssignmentValue(1, 1, MemberState.STABLE, assigned, {})
    return GroupRecord(CurrentAssignmentKey(GROUP, member_id), value)


def replay(*records: GroupRecord) -> ConsumerState:
    state = ConsumerState(GROUP, settings_of())
    for record in records:
        state.apply(record)
    state.loaded(image_of(foo=3))
    return state


def test_replay_gives_a_reassigned_partition_to_its_last_owner() -> None:
    """The records of the revocations are missing: later records of these members replaced them."""
    zero, one = {FOO: frozenset({0})}, {FOO: frozenset({1})}
    state = replay(said("a"), said("b"), owns("a", zero), owns("b", zero), owns("a", one))
    assert state._owners == {FOO: {0: "b", 1: "a"}}
    state = replay(said("a"), said("b"), owns("a", zero), owns("b", zero), owns("a", zero), owns("b", one))
    assert state._owners == {FOO: {0: "a", 1: "b"}}


def test_replay_leaves_a_revoked_partition_of_two_former_owners_free() -> None:
    zero = {FOO: frozenset({0})}
    state = replay(said("a"), said("b"), owns("a", zero), owns("b", zero), owns("b", {}), owns("a", {}))
    assert state._owners == {}
    assert state.is_free(FOO, 0)


def test_assignment_without_a_member_is_dropped_with_its_partitions() -> None:
    state = replay(owns("a", {FOO: frozenset({0}), BAR: frozenset({2})}), said("b"))
    assert set(state.members) == {"b"}
    assert state._owners == {}


def test_assignment_record_before_its_member_record_is_applied() -> None:
    state = replay(owns("a", {FOO: frozenset({0})}), said("a"))
    assert state._owners == {FOO: {0: "a"}}
    assert state.members["a"].assigned == {FOO: frozenset({0})}


def test_tombstone_of_an_assignment_frees_its_partitions() -> None:
    gone = GroupRecord(CurrentAssignmentKey(GROUP, "a"), None)
    state = replay(said("a"), owns("a", {FOO: frozenset({0})}), gone)
    assert state.is_free(FOO, 0)
    assert state.members["a"].assigned == {}
