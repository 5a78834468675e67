"""Assignors of the consumer protocol, with random members and subscriptions."""

from __future__ import annotations

from time import perf_counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.consumer.assignors import Assign, SubscribedMember, assign_range, assign_uniform
from penstock.groups.records import Assignment
from penstock.model import TopicId

TOPICS = [TopicId(UUID(int=number)) for number in range(1, 7)]

counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
some_topics = st.frozensets(st.sampled_from(TOPICS))
instances = st.none() | st.sampled_from(["i0", "i1", "i2"])


@st.composite
def alike(draw: st.DrawFn) -> dict[str, SubscribedMember]:
    topics = draw(some_topics)
    return {f"m{number}": SubscribedMember(None, topics) for number in range(draw(st.integers(1, 8)))}


@st.composite
def mixed(draw: st.DrawFn) -> dict[str, SubscribedMember]:
    subscriptions = draw(st.lists(some_topics, min_size=1, max_size=8))
    return {f"m{number}": SubscribedMember(None, topics) for number, topics in enumerate(subscriptions)}


def read(readers: dict[str, SubscribedMember], partition_counts: dict[TopicId, int]) -> dict[TopicId, int]:
    topics = frozenset().union(*(reader.topics for reader in readers.values()))
    return {topic: count for topic, count in partition_counts.items() if topic in topics}


def pairs(assignment: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def check_complete(
    assigned: dict[str, Assignment],
    readers: dict[str, SubscribedMember],
    partition_counts: dict[TopicId, int],
) -> None:
    assert assigned.keys() == readers.keys()
    given_out = [pair for assignment in assigned.values() for pair in pairs(assignment)]
    assert len(given_out) == len(set(given_out)), "given to two"
    assert set(given_out) == {
        (topic, number) for topic, count in read(readers, partition_counts).items() for number in range(count)
    }
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= readers[member_id].topics
        assert all(assignment.values()), "topics without partitions are left out"


def sizes(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {member_id: len(pairs(assignment)) for member_id, assignment in assigned.items()}


def moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Number of partitions that moved between members that are still in the group."""
    return sum(len(pairs(before[member_id]) - pairs(after[member_id])) for member_id in before.keys() & after)


@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
@given(readers=mixed(), partition_counts=counts)
def test_every_partition_goes_to_exactly_one_subscriber(
    assign: Assign, readers: dict[str, SubscribedMember], partition_counts: dict[TopicId, int]
) -> None:
    check_complete(assign(readers, read(readers, partition_counts), {}), readers, partition_counts)


@given(readers=alike(), partition_counts=counts)
def test_uniform_balances_equal_subscriptions_within_one(
    readers: dict[str, SubscribedMember], partition_counts: dict[TopicId, int]
) -> None:
    loads = sizes(assign_uniform(readers, read(readers, partition_counts), {})).values()
    assert max(loads) - min(loads) <= 1


@given(before=mixed(), after=mixed(), counts_before=counts, counts_after=counts)
def test_uniform_is_complete_and_level_after_any_change(
    before: dict[str, SubscribedMember],
    after: dict[str, SubscribedMember],
    counts_before: dict[TopicId, int],
    counts_after: dict[TopicId, int],
) -> None:
    first = assign_uniform(before, read(before, counts_before), {})
    second = assign_uniform(after, read(after, counts_after), first)
    check_complete(second, after, counts_after)
    loads = sizes(second)
    for giver, assignment in second.items():
        for topic in assignment:
            for taker, reader in after.items():
                if topic in reader.topics:
                    assert loads[giver] - loads[taker] <= 1, "one move would make it more even"


@given(readers=mixed(), partition_counts=counts)
def test_uniform_moves_nothing_when_nothing_changed(
    readers: dict[str, SubscribedMember], partition_counts: dict[TopicId, int]
) -> None:
    counts_read = read(readers, partition_counts)
    first = assign_uniform(readers, counts_read, {})
    assert assign_uniform(readers, counts_read, first) == first


@given(readers=alike(), partition_counts=counts, data=st.data())
def test_uniform_moves_no_more_partitions_than_balance_needs(
    readers: dict[str, SubscribedMember], partition_counts: dict[TopicId, int], data: st.DataObject
) -> None:
    counts_read = read(readers, partition_counts)
    first = assign_uniform(readers, counts_read, {})
    topics = next(iter(readers.values())).topics
    gone = data.draw(st.sets(st.sampled_from(sorted(readers)), max_size=len(readers) - 1))
    new = data.draw(st.integers(0, 4))
    changed = {member_id: reader for member_id, reader in readers.items() if member_id not in gone}
    changed |= {f"n{number}": SubscribedMember(None, topics) for number in range(new)}
    second = assign_uniform(changed, counts_read, first)
    check_complete(second, changed, partition_counts)
    quota, extra = divmod(sum(counts_read.values()), len(changed))
    loads = sorted((len(pairs(first[member_id])) for member_id in readers.keys() - gone), reverse=True)
    # A member above its share gives up the rest and no more: `extra` of them may keep one more.
    needed = sum(max(load - quota - (place < extra), 0) for place, load in enumerate(loads))
    assert moved(first, second) == needed


@given(before=mixed(), data=st.data(), partition_counts=counts)
def test_uniform_reassigns_partitions_of_a_departed_member_with_few_moves(
    before: dict[str, SubscribedMember], data: st.DataObject, partition_counts: dict[TopicId, int]
) -> None:
    first = assign_uniform(before, read(before, partition_counts), {})
    gone = data.draw(st.sampled_from(sorted(before)))
    after = {member_id: reader for member_id, reader in before.items() if member_id != gone}
    second = assign_uniform(after, read(after, partition_counts), first)
    # A chain of moves may follow each reassigned partition, through each other member at most once.
    assert moved(first, second) <= len(pairs(first[gone])) * max(len(after) - 1, 0)


@given(topics=some_topics, partition_counts=counts, members=st.lists(instances, min_size=1, max_size=6))
def test_range_gives_contiguous_ranges_of_nearly_equal_size(
    topics: frozenset[TopicId], partition_counts: dict[TopicId, int], members: list[str | None]
) -> None:
    named = [instance if instance not in members[:place] else None for place, instance in enumerate(members)]
    readers = {f"m{place}": SubscribedMember(instance, topics) for place, instance in enumerate(named)}
    assigned = assign_range(readers, read(readers, partition_counts), {})
    for topic in topics:
        lengths = []
        for assignment in assigned.values():
            numbers = sorted(assignment.get(topic, ()))
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            lengths.append(len(numbers))
        assert max(lengths) - min(lengths) <= 1


def test_range_gives_the_same_partitions_of_topics_that_are_alike() -> None:
    readers = {f"m{number}": SubscribedMember(None, frozenset(TOPICS[:3])) for number in range(3)}
    assigned = assign_range(readers, dict.fromkeys(TOPICS[:3], 8), {})
    for assignment in assigned.values():
        assert len(set(assignment.values())) == 1


def test_range_keeps_a_static_member_in_its_place() -> None:
    topics = frozenset(TOPICS[:1])
    partition_counts = {TOPICS[0]: 6}
    before = assign_range(
        {"z": SubscribedMember("i1", topics), "b": SubscribedMember("i2", topics)}, partition_counts, {}
    )
    after = assign_range(
        {"y": SubscribedMember("i2", topics), "a": SubscribedMember("i1", topics)}, partition_counts, {}
    )
    assert (before["z"], before["b"]) == (after["a"], after["y"])
    assert before["z"] == {TOPICS[0]: frozenset({0, 1, 2})}


def test_uniform_spreads_the_partitions_of_a_topic() -> None:
    readers = {f"m{number}": SubscribedMember(None, frozenset(TOPICS[:2])) for number in range(3)}
    assigned = assign_uniform(readers, dict.fromkeys(TOPICS[:2], 3), {})
    for assignment in assigned.values():
        assert {topic: len(numbers) for topic, numbers in assignment.items()} == dict.fromkeys(TOPICS[:2], 1)


def test_uniform_assigns_exclusive_topics_to_their_only_subscribers() -> None:
    readers = {
        "a": SubscribedMember(None, frozenset(TOPICS[:2])),
        "b": SubscribedMember(None, frozenset(TOPICS[:1])),
    }
    assigned = assign_uniform(readers, dict.fromkeys(TOPICS[:2], 4), {})
    assert sizes(assigned) == {"a": 4, "b": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "topics", "partitions", "limit_s"), [(200, 10, 100, 0.1), (1_000, 100, 100, 1.0)]
)
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
def test_large_groups_are_assigned_quickly(
    assign: Assign, is_mixed: bool, members: int, topics: int, partitions: int, limit_s: float
) -> None:
    ids = [TopicId(UUID(int=number)) for number in range(topics)]
    readers = {
        f"m{number}": SubscribedMember(None, frozenset(ids[number % 2 :: 2] if is_mixed else ids))
        for number in range(members)
    }
    partition_counts = dict.fromkeys(ids, partitions)
    first = assign(readers, partition_counts, {})
    del readers["m0"]
    readers["new"] = SubscribedMember(None, frozenset(ids))
    durations = []
    for _ in range(3):
        start = perf_counter()
        assign(readers, partition_counts, first)
        durations.append(perf_counter() - start)
    assert min(durations) < limit_s
