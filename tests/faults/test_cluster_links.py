"""Three brokers under load that are partitioned from each other or from ZooKeeper.

Each test ends with all checks: no acknowledged record lost or duplicated, order kept, no record or commit
that a client saw taken back, replicas byte-identical. docs/faults.md lists which scenario is tested where.
"""

from __future__ import annotations

import pytest
from linked_cluster import ZOOKEEPER, LinkedCluster, StartCluster
from load import under_load

from support.cluster_processes import SESSION_TIMEOUT_MS

TOPIC = "orders"
SESSION_S = SESSION_TIMEOUT_MS / 1000
SHORT_LAG = "replica.lag.time.max.ms=2000"
CUT_OR_HELD = pytest.mark.parametrize("how", ["cut", pytest.param("hold", marks=pytest.mark.long_faults)])


def others(cluster: LinkedCluster, number: int) -> list[int]:
    return [each for each in cluster.brokers if each != number]


@pytest.mark.parametrize(
    "seconds", [1.5 * SESSION_S, pytest.param(20.0, marks=pytest.mark.long_faults)], ids=["short", "long"]
)
def test_writes_continue_without_zookeeper(start_cluster: StartCluster, seconds: float) -> None:
    cluster = start_cluster()
    with under_load(cluster, TOPIC) as load:
        cluster.kill_zookeeper()
        load.keep_writing(seconds)
        cluster.start_zookeeper()
        load.keep_writing(SESSION_S)
        load.expect_all_kept()


@CUT_OR_HELD
def test_follower_without_its_leader_leaves_the_isr_and_writes_continue(
    start_cluster: StartCluster, how: str
) -> None:
    cluster = start_cluster(SHORT_LAG)
    with under_load(cluster, TOPIC, partitions=1) as load:
        leader = cluster.leader(TOPIC)
        [parted, _] = others(cluster, leader)
        getattr(cluster, how)(parted, leader)
        cluster.until(lambda: parted not in cluster.in_sync(TOPIC), "the follower is out")
        load.keep_writing(1)
        assert cluster.leader(TOPIC) == leader
        cluster.links.heal()
        load.expect_all_kept()


@pytest.mark.long_faults
@pytest.mark.parametrize("way", ["requests", "answers"])
def test_a_follower_that_is_heard_or_hears_one_way_only_leaves_the_set(
    start_cluster: StartCluster, way: str
) -> None:
    cluster = start_cluster(SHORT_LAG)
    with under_load(cluster, TOPIC, partitions=1) as load:
        leader = cluster.leader(TOPIC)
        [parted, _] = others(cluster, leader)
        cluster.links.hold(parted, leader, requests=way == "requests", answers=way == "answers")
        cluster.until(lambda: parted not in cluster.in_sync(TOPIC), "the follower is out")
        load.keep_writing(1)
        cluster.links.heal()
        load.expect_all_kept()


@pytest.mark.long_faults
def test_a_slow_follower_leaves_the_set_and_is_back_when_it_has_caught_up(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(SHORT_LAG)
    with under_load(cluster, TOPIC, partitions=1) as load:
        leader = cluster.leader(TOPIC)
        [slow, _] = others(cluster, leader)
        cluster.links.slow(slow, leader, 1.0)
        cluster.until(lambda: slow not in cluster.in_sync(TOPIC), "the follower is out")
        load.keep_writing(10)
        assert slow not in cluster.in_sync(TOPIC)
        cluster.links.heal()
        cluster.until(lambda: slow in cluster.in_sync(TOPIC), "the follower is back while others write")
        load.expect_all_kept()


@CUT_OR_HELD
def test_a_leader_that_has_lost_zookeeper_is_replaced(start_cluster: StartCluster, how: str) -> None:
    cluster = start_cluster()
    with under_load(cluster, TOPIC) as load:
        cluster.wait_until_healed()
        lost = cluster.leader(TOPIC)
        [witness, _] = others(cluster, lost)
        getattr(cluster.links, how)(lost, ZOOKEEPER)
        cluster.until(lambda: cluster.leader(TOPIC, seen_by=witness) not in (lost, -1), "another leads")
        load.wait_for_more()
        cluster.links.heal()
        load.wait_for_more()
        load.expect_all_kept()


@pytest.mark.long_faults
@pytest.mark.parametrize("how", ["cut", "hold"])
def test_partitioned_leader_with_clients_acknowledges_nothing_and_is_replaced(
    start_cluster: StartCluster, how: str
) -> None:
    cluster = start_cluster()
    with under_load(cluster, TOPIC, partitions=1) as load:
        cluster.wait_until_healed()
        alone = cluster.leader(TOPIC)
        [witness, _] = others(cluster, alone)
        getattr(cluster.links, how)(alone, ZOOKEEPER)
        for other in others(cluster, alone):
            getattr(cluster, how)(alone, other)
        cluster.until(lambda: cluster.leader(TOPIC, seen_by=witness) not in (alone, -1), "another leads")
        load.wait_for_more()
        seen = load.seen()
        cluster.until(lambda: load.seen() > seen + 100, "readers find it too")
        cluster.links.heal()
        load.expect_all_kept()


@pytest.mark.long_faults
@pytest.mark.parametrize("how", ["cut", "hold"])
def test_a_leader_without_followers_acknowledges_nothing_until_they_are_back(
    start_cluster: StartCluster, how: str
) -> None:
    """The partitioned broker keeps its ZooKeeper session, so no other broker may become leader."""
    cluster = start_cluster(SHORT_LAG)
    with under_load(cluster, TOPIC, partitions=1) as load:
        leader = cluster.leader(TOPIC)
        for other in others(cluster, leader):
            getattr(cluster, how)(leader, other)
        cluster.until(lambda: cluster.in_sync(TOPIC, seen_by=leader) == {leader}, "the leader is alone")
        before = load.acknowledged
        cluster.until(lambda: load.is_stuck_for(2.0), "writers wait")
        assert load.acknowledged - before < 1_000, "what had been sent before the set shrank"
        assert cluster.leader(TOPIC, seen_by=leader) == leader
        cluster.links.heal()
        load.wait_for_more()
        load.expect_all_kept()
