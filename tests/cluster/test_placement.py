from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.image import RegisteredBroker
from penstock.cluster.placement import place_replicas
from penstock.model import BrokerEpoch, BrokerId


def broker(node_id: int, machine: int, rack: int) -> RegisteredBroker:
    return RegisteredBroker(
        BrokerId(node_id), "h", 9092, BrokerEpoch(1), f"m{machine}", f"r{rack}" if rack else None
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[RegisteredBroker]:
    ids = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True))
    machine_racks = draw(st.lists(st.integers(0, 3), min_size=9, max_size=9))
    brokers = []
    for node_id in ids:
        machine = draw(st.integers(0, 8))
        brokers.append(broker(node_id, machine, machine_racks[machine]))
    return brokers


@settings(max_examples=200, deadline=None)
@given(clusters(), st.integers(1, 30), st.integers(0, 100), st.data())
def test_replicas_never_share_a_broker_nor_needlessly_a_machine(
    brokers: list[RegisteredBroker], partitions: int, first: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    machine_of = {broker.node_id: broker.machine_id for broker in brokers}
    placed = place_replicas(brokers, partitions, factor, first)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(machine_of)
        machines = {machine_of[replica] for replica in replicas}
        assert len(machines) == min(factor, len(set(machine_of.values())))


@settings(max_examples=100, deadline=None)
@given(clusters(), st.integers(1, 40), st.integers(0, 100))
def test_leaders_are_spread_evenly(brokers: list[RegisteredBroker], partitions: int, first: int) -> None:
    leaders = Counter(replicas[0] for replicas in place_replicas(brokers, partitions, 1, first))
    counts = [leaders[broker.node_id] for broker in brokers]
    assert max(counts) - min(counts) <= 1


def test_replicas_are_spread_over_racks_if_possible() -> None:
    brokers = [broker(number, number, 1 + number % 2) for number in range(4)]
    for replicas in place_replicas(brokers, 8, 2, 0):
        assert {replica % 2 for replica in replicas} == {0, 1}


def test_replicas_are_spread_nearly_evenly() -> None:
    brokers = [broker(number, number, 0) for number in range(5)]
    held = Counter(replica for replicas in place_replicas(brokers, 10, 3, 0) for replica in replicas)
    assert max(held.values()) - min(held.values()) <= 2


@pytest.mark.parametrize("factor", [0, 3])
def test_more_replicas_than_brokers_raise_value_error(factor: int) -> None:
    with pytest.raises(ValueError):
        place_replicas([broker(1, 1, 0), broker(2, 2, 0)], 1, factor, 0)
