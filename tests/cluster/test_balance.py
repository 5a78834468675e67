"""Replica assignment plans: rules that hold for any cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.balance import differences, plan_balance, plan_drain, plan_replacement
from penstock.cluster.replica_layout import Assignment, Location, NoPlan
from penstock.model import BrokerId, TopicPartition

Brokers = Mapping[BrokerId, Location]

unhurried = settings(deadline=None)


def broker_ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def own_machines(count: int) -> dict[BrokerId, Location]:
    return {BrokerId(number): Location(f"machine-{number}") for number in range(1, count + 1)}


@st.composite
def clusters(draw: st.DrawFn, *, plain: bool = False) -> tuple[Assignment, Brokers]:
    """Partitions placed at random on some of the brokers. `plain`: every broker on its own machine, without
    racks.
    """
    count = draw(st.integers(2, 7))
    brokers = own_machines(count)
    if not plain:
        brokers = {
            broker: Location(
                f"machine-{draw(st.integers(1, count))}", draw(st.sampled_from([None, "a", "b"]))
            )
            for broker in brokers
        }
    used = list(brokers)[: draw(st.integers(1, count))]
    assignment = {}
    for topic in range(draw(st.integers(1, 4))):
        replication_factor = draw(st.integers(1, min(3, len(used))))
        for partition in range(draw(st.integers(1, 8))):
            order = draw(st.permutations(used))
            assignment[TopicPartition(f"topic-{topic}", partition)] = tuple(order[:replication_factor])
    return assignment, brokers


def held(assignment: Assignment) -> Counter[BrokerId]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def led(assignment: Assignment) -> Counter[BrokerId]:
    return Counter(replicas[0] for replicas in assignment.values())


def diversity(replicas: tuple[BrokerId, ...], brokers: Brokers) -> tuple[int, int]:
    return len({brokers[broker].machine for broker in replicas}), len(
        {brokers[broker].rack for broker in replicas}
    )


def added(before: Assignment, after: Assignment) -> int:
    return sum(len(set(after[name]) - set(before[name])) for name in before)


@unhurried
@given(clusters())
def test_plan_keeps_replica_count_and_distance(
    given_cluster: tuple[Assignment, Brokers],
) -> None:
    current, brokers = given_cluster
    planned = plan_balance(current, brokers)
    assert planned.keys() == current.keys()
    for name, replicas in planned.items():
        assert len(set(replicas)) == len(replicas) == len(current[name])
        assert diversity(replicas, brokers) >= diversity(current[name], brokers)


@unhurried
@given(clusters())
def test_replicas_share_no_machine_while_another_is_free(
    given_cluster: tuple[Assignment, Brokers],
) -> None:
    current, brokers = given_cluster
    machines = len({location.machine for location in brokers.values()})
    for replicas in plan_balance(current, brokers).values():
        assert diversity(replicas, brokers)[0] == min(machines, len(replicas))


@unhurried
@given(clusters(plain=True))
def test_brokers_are_level_with_fewest_moves_without_racks(
    given_cluster: tuple[Assignment, Brokers],
) -> None:
    current, brokers = given_cluster
    planned = plan_balance(current, brokers)
    before, after = held(current), held(planned)
    assert max(after[broker] for broker in brokers) - min(after[broker] for broker in brokers) <= 1
    total = sum(before.values())
    low, high = total // len(brokers), -(-total // len(brokers))
    too_many = sum(max(0, before[broker] - high) for broker in brokers)
    too_few = sum(max(0, low - before[broker]) for broker in brokers)
    assert added(current, planned) == max(too_many, too_few)


@unhurried
@given(clusters(plain=True))
def test_leaders_are_even_by_topic_then_in_total(given_cluster: tuple[Assignment, Brokers]) -> None:
    current, brokers = given_cluster
    planned = plan_balance(current, brokers)
    leads = led(planned)
    for name, replicas in planned.items():
        of_topic = led({each: planned[each] for each in planned if each.topic == name.topic})
        for other in replicas[1:]:
            assert of_topic[replicas[0]] - of_topic[other] <= 1
            assert leads[replicas[0]] - leads[other] <= 1 or of_topic[replicas[0]] <= of_topic[other]


@settings(deadline=None, max_examples=400)
@given(clusters())
def test_balanced_assignment_is_unchanged(given_cluster: tuple[Assignment, Brokers]) -> None:
    current, brokers = given_cluster
    planned = plan_balance(current, brokers)
    assert differences(planned, plan_balance(planned, brokers)) == {}


@unhurried
@given(clusters(), st.integers(1, 3))
def test_higher_replication_factor_adds_and_lower_removes_nothing(
    given_cluster: tuple[Assignment, Brokers], replication_factor: int
) -> None:
    current, brokers = given_cluster
    if replication_factor > len(brokers):
        with pytest.raises(NoPlan):
            plan_balance(current, brokers, replication_factor)
        return
    for name, replicas in plan_balance(current, brokers, replication_factor).items():
        assert len(set(replicas)) == len(replicas) == max(len(current[name]), replication_factor)


@unhurried
@given(clusters(plain=True), st.integers(1, 3))
def test_only_added_replicas_move_in_balanced_cluster(
    given_cluster: tuple[Assignment, Brokers], replication_factor: int
) -> None:
    current, brokers = given_cluster
    balanced = plan_balance(current, brokers)
    count = min(replication_factor, len(brokers))
    planned = plan_balance(balanced, brokers, count)
    assert added(balanced, planned) == sum(max(0, count - len(replicas)) for replicas in balanced.values())


@unhurried
@given(clusters(), st.data())
def test_drain_moves_only_replicas_of_the_broker(
    given_cluster: tuple[Assignment, Brokers], data: st.DataObject
) -> None:
    current, brokers = given_cluster
    leaving = data.draw(st.sampled_from(sorted(brokers)))
    needed = max((len(replicas) for replicas in current.values() if leaving in replicas), default=0)
    if needed >= len(brokers):
        with pytest.raises(NoPlan):
            plan_drain(current, brokers, leaving)
        return
    planned = plan_drain(current, brokers, leaving)
    for name, replicas in planned.items():
        if leaving in current[name]:
            assert leaving not in replicas
            assert len(set(replicas)) == len(current[name])
            assert len(set(replicas) - set(current[name])) == 1
        else:
            assert replicas == current[name]


@unhurried
@given(clusters(plain=True), st.data())
def test_replacement_gets_replicas_of_lost_broker(
    given_cluster: tuple[Assignment, Brokers], data: st.DataObject
) -> None:
    current, brokers = given_cluster
    lost = data.draw(st.sampled_from(sorted(brokers)))
    new = BrokerId(100)
    after = {broker: place for broker, place in brokers.items() if broker != lost} | {new: Location("new")}
    planned = plan_replacement(current, after, lost, new)
    expected = {
        name: tuple(new if broker == lost else broker for broker in replicas)
        for name, replicas in current.items()
    }
    assert planned == expected


def test_replacement_with_a_replica_is_helped_by_another_broker() -> None:
    name = TopicPartition("orders", 0)
    planned = plan_replacement({name: broker_ids(1, 2)}, own_machines(3), BrokerId(2), BrokerId(1))
    assert planned == {name: broker_ids(1, 3)}


def test_replicas_on_offline_broker_stay() -> None:
    current = {TopicPartition("orders", number): broker_ids(9, 1) for number in range(4)}
    planned = plan_balance(current, own_machines(2))
    assert all(9 in replicas for replicas in planned.values())
    assert held(planned)[BrokerId(2)] == 2


def test_partitions_of_a_topic_are_spread() -> None:
    current = {
        TopicPartition(topic, number): broker_ids(1 + number % 2)
        for topic in ("orders", "payments")
        for number in range(8)
    }
    planned = plan_balance(current, own_machines(4))
    for topic in ("orders", "payments"):
        counts = Counter(replicas[0] for name, replicas in planned.items() if name.topic == topic)
        assert counts == dict.fromkeys(broker_ids(1, 2, 3, 4), 2)


def test_ten_thousand_partitions_are_planned_in_seconds() -> None:
    current = {
        TopicPartition(f"topic-{number // 4}", number % 4): broker_ids(
            1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3
        )
        for number in range(10_000)
    }
    planned = plan_balance(current, own_machines(4))
    assert set(held(planned).values()) == {7_500}
    assert set(led(planned).values()) == {2_500}
