"""Reconciliation of a member from its current to its target assignment, one heartbeat at a time (KIP-848).

A partition has at most one owner: a member first revokes a partition and confirms that, and only then may
another member take it. A member with partitions to revoke keeps its epoch. Afterwards it moves to the target
epoch and takes the partitions that are free, and the others when they become free. Pure; called by
`ConsumerState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from penstock.groups.records import Assignment, CurrentAssignmentValue, MemberState
from penstock.model import TopicId

IsFree: TypeAlias = Callable[[TopicId, int], bool]

_NONE: frozenset[int] = frozenset()


def reconcile(
    current: CurrentAssignmentValue,
    target: Assignment,
    target_epoch: int,
    is_free: IsFree,
    owned: Assignment | None,
) -> CurrentAssignmentValue:
    """Return the next assignment of a member. `owned` has the partitions that the member reported; None if
    the heartbeat did not report them.
    """
    if current.state is MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, current.pending_revocation):
        return current
    kept = overlap(current.assigned, target)
    to_revoke = minus(current.assigned, kept)
    if to_revoke and _still_owns(owned, to_revoke):
        return CurrentAssignmentValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    missing = minus(target, kept)
    free = {
        topic: partitions
        for topic, numbers in missing.items()
        if (partitions := frozenset(number for number in numbers if is_free(topic, number)))
    }
    return CurrentAssignmentValue(
        member_epoch=target_epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        pending_revocation={},
    )


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    return owned is None or bool(overlap(owned, revoked))


def overlap(left: Assignment, right: Mapping[TopicId, frozenset[int]]) -> Assignment:
    both = {topic: numbers & right.get(topic, _NONE) for topic, numbers in left.items()}
    return {topic: numbers for topic, numbers in both.items() if numbers}


def minus(left: Assignment, right: Mapping[TopicId, frozenset[int]]) -> Assignment:
    rest = {topic: numbers - right.get(topic, _NONE) for topic, numbers in left.items()}
    return {topic: numbers for topic, numbers in rest.items() if numbers}


def union(left: Assignment, right: Assignment) -> Assignment:
    return {topic: left.get(topic, _NONE) | right.get(topic, _NONE) for topic in left.keys() | right.keys()}


def is_within(inner: Assignment, outer: Assignment) -> bool:
    return all(numbers <= outer.get(topic, _NONE) for topic, numbers in inner.items())
