"""The assignor of share groups: every partition and every member served, balanced and sticky."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import UUID

import pytest

from penstock.groups.records import Assignment
from penstock.groups.share.assignor import assign_shared
from penstock.model import TopicId

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def check(
    assigned: dict[str, Assignment], topics_of: dict[str, frozenset[TopicId]], counts: dict[TopicId, int]
) -> None:
    """Every partition of a subscribed topic has a member, every member a partition of its topics."""
    given = Counter((t, p) for each in assigned.values() for t, indexes in each.items() for p in indexes)
    wanted = {t for topics in topics_of.values() for t in topics if counts.get(t)}
    assert set(given) == {(t, p) for t in wanted for p in range(counts[t])}
    for member, topics in topics_of.items():
        assert set(assigned[member]) <= topics
        assert bool(assigned[member]) == any(counts.get(t) for t in topics)


@pytest.mark.parametrize(
    ("members", "partitions"), [(1, 4), (3, 4), (4, 4), (5, 4), (10, 4), (1000, 4), (7, 1)]
)
def test_members_and_partitions_differ_by_one_at_most(members: int, partitions: int) -> None:
    topics_of = {f"m{place}": frozenset({A}) for place in range(members)}
    counts = {A: partitions}
    assigned = assign_shared(topics_of, counts, {})
    check(assigned, topics_of, counts)
    sizes = [len(each[A]) for each in assigned.values()]
    loads = Counter(p for each in assigned.values() for p in each[A])
    assert max(sizes) - min(sizes) <= 1
    assert max(loads.values()) - min(loads.values()) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_membership_changes_move_few_assignments(seed: int) -> None:
    random = Random(seed)
    counts = {A: random.randrange(1, 9)}
    members = {f"m{place}" for place in range(random.randrange(1, 40))}
    assigned: dict[str, Assignment] = {}
    for _ in range(20):
        topics_of = {member: frozenset({A}) for member in members}
        again = assign_shared(topics_of, counts, assigned)
        check(again, topics_of, counts)
        assert assign_shared(topics_of, counts, again) == again
        if len(members) > counts[A] + 1 and len(assigned) > counts[A] + 1:
            stayed = [m for m in members if m in assigned]
            moved = [m for m in stayed if assigned[m] != again[m]]
            assert len(moved) <= counts[A] + 1
        assigned = again
        if random.random() < 0.5:
            members.add(f"n{random.randrange(1000)}")
        elif len(members) > 1:
            members.remove(random.choice(sorted(members)))


@pytest.mark.parametrize("seed", range(30))
def test_different_subscriptions_leave_no_member_or_partition_out(seed: int) -> None:
    random = Random(seed)
    counts = {A: random.randrange(0, 6), B: random.randrange(1, 6)}
    choices = [frozenset({A}), frozenset({B}), frozenset({A, B})]
    topics_of = {f"m{place}": random.choice(choices) for place in range(random.randrange(1, 15))}
    check(assign_shared(topics_of, counts, {}), topics_of, counts)
