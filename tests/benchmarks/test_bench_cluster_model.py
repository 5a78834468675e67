"""Predictions for larger clusters: the formulas of docs/performance.md."""

from __future__ import annotations

import pytest

from bench.cluster_model import Costs, Model, table

COSTS = Costs(
    cpu_s_per_gb=1,
    cpu_us_per_request=20,
    idle_fetch_us=100,
    zookeeper_read_us=50,
    idle_mb=50,
    partition_kb=6,
    connection_kb=10,
)


def test_throughput_grows_with_the_brokers() -> None:
    assert Model(3, COSTS).gb_per_s == pytest.approx(1)
    assert Model(300, COSTS).gb_per_s == pytest.approx(100)
    assert Model(3, COSTS).requests_per_s == pytest.approx(50_000)


def test_broker_follows_at_most_one_leader_per_follower_replica() -> None:
    assert Model(3, COSTS).followed == 2
    assert Model(1_000, COSTS).followed == 200
    assert Model(1_000, COSTS).idle_fetch_cores == pytest.approx(200 * 2 * 100e-6)


def test_failover_cost_grows_with_the_square_of_the_brokers() -> None:
    small, large = Model(100, COSTS), Model(1_000, COSTS)
    assert small.reads_after_a_death == pytest.approx(100 * (100 + 300 * 1.2))
    assert large.death_known_s / small.death_known_s > 10


def test_the_table_has_a_column_for_each_size() -> None:
    assert table(COSTS, (3, 7)).splitlines()[0] == "|  | 3 brokers | 7 brokers |"
