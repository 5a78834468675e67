"""Three brokers under load that are killed, paused, emptied, restarted and reassigned.

Each test ends with the checks of test_cluster_links.py.
"""

from __future__ import annotations

import pytest
from linked_cluster import StartCluster
from load import under_load

from support import raw
from support.cluster_processes import ClusterProcesses

TOPIC = "orders"
LONGEST_PAUSE_S = 10.0
"""Bound for a controlled leader change, in seconds; generous because other tests run at the same time."""


def others(cluster: ClusterProcesses, number: int) -> list[int]:
    return [each for each in cluster.brokers if each != number]


def stored_bytes(cluster: ClusterProcesses, number: int) -> int:
    return sum(path.stat().st_size for path in cluster.brokers[number].data_dir.rglob(f"{TOPIC}-*/*.log"))


def test_killing_all_brokers_at_once_loses_nothing(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        for order in ([1, 2, 3], [3, 1, 2]):
            cluster.kill()
            for number in order:
                cluster.start_brokers([number])
            load.wait_for_more()
        load.expect_all_kept()


def test_leader_paused_beyond_its_session_becomes_a_follower(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        cluster.wait_until_healed()
        zombie = cluster.leader(TOPIC)
        [witness, _] = others(cluster, zombie)
        cluster.pause(zombie)
        cluster.until(lambda: cluster.leader(TOPIC, seen_by=witness) not in (zombie, -1), "another leads")
        load.wait_for_more()
        cluster.resume(zombie)
        load.wait_for_more()
        load.expect_all_kept()


@pytest.mark.long_faults
def test_paused_controller_is_replaced(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        old = cluster.controller()
        [witness, _] = others(cluster, old)
        cluster.pause(old)
        cluster.until(lambda: cluster.metadata(witness).controller_id not in (old, -1), "another controls")
        cluster.resume(old)
        cluster.until(lambda: cluster.metadata(old).controller_id not in (old, -1), "the old one knows")
        load.wait_for_more()
        load.expect_all_kept()


def test_an_emptied_disk_is_filled_again_from_the_others(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        emptied = cluster.leader(TOPIC)
        cluster.kill_brokers([emptied])
        load.wait_for_more()
        cluster.empty(emptied)
        cluster.start_brokers([emptied])
        load.wait_for_more()
        load.expect_all_kept()


@pytest.mark.long_faults
def test_emptied_disk_with_the_only_complete_replica_does_not_lead(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC, partitions=1) as load:
        sole = cluster.leader(TOPIC)
        rest = others(cluster, sole)
        cluster.kill_brokers(rest)
        cluster.until(lambda: cluster.in_sync(TOPIC, seen_by=sole) == {sole}, "one is left")
        load.abandon()
        cluster.kill_brokers([sole])
        cluster.empty(sole)
        cluster.start_brokers(rest)
        kept = {number: stored_bytes(cluster, number) for number in rest}
        cluster.until(
            lambda: cluster.metadata(rest[0]).controller_id in rest, "the session of the dead has ended"
        )
        cluster.start_brokers([sole])
        cluster.until(
            lambda: all(cluster.leader(TOPIC, seen_by=number) == -1 for number in cluster.brokers),
            "nobody leads",
        )
        assert {number: stored_bytes(cluster, number) for number in rest} == kept


@pytest.mark.long_faults
def test_stale_replica_does_not_lead_until_a_complete_one_is_back(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC, partitions=1) as load:
        last = cluster.leader(TOPIC)
        stale, second = others(cluster, last)
        cluster.kill_brokers([stale])
        load.wait_for_more()
        cluster.kill_brokers([second])
        cluster.until(lambda: cluster.in_sync(TOPIC, seen_by=last) == {last}, "one is left")
        cluster.kill_brokers([last])
        cluster.start_brokers([stale])
        cluster.until(lambda: cluster.metadata(stale).controller_id == stale, "the stale one controls")
        cluster.until(lambda: load.is_stuck_for(3.0), "nothing is acknowledged")
        assert cluster.leader(TOPIC, seen_by=stale) == -1
        cluster.start_brokers([last])
        cluster.until(lambda: cluster.leader(TOPIC) == last, "the whole copy leads")
        cluster.start_brokers([second])
        load.expect_all_kept()


@pytest.mark.long_faults
def test_rolling_restart_interrupts_writes_only_briefly(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        for number in cluster.brokers:
            cluster.brokers[number].stop()
            assert load.wait_for_more(1) < LONGEST_PAUSE_S
            cluster.start_brokers([number])
            cluster.wait_until_healed()
        load.expect_all_kept()


@pytest.mark.long_faults
@pytest.mark.parametrize("victim", [1, 2, 4], ids=["leaves", "stays", "comes"])
def test_reassignment_completes_while_a_broker_is_killed(start_cluster: StartCluster, victim: int) -> None:
    cluster = start_cluster(linked=False, size=4)
    with under_load(cluster, TOPIC, partitions=1) as load:
        move(cluster, [1, 2, 3])
        cluster.until(lambda: set(replicas_of(cluster)) == {1, 2, 3}, "the topic is where it starts")
        move(cluster, [2, 3, 4])
        cluster.kill_brokers([victim])
        load.wait_for_more()
        cluster.start_brokers([victim])
        cluster.until(lambda: set(replicas_of(cluster)) == {2, 3, 4}, "the copies have moved")
        load.expect_all_kept()


def move(cluster: ClusterProcesses, replicas: list[int]) -> None:
    partition = {"partition_index": 0, "replicas": replicas}
    with raw.RawClient(cluster.brokers[cluster.controller()].port) as client:
        answer = client.call(
            raw.ALTER_PARTITION_REASSIGNMENTS,
            0,
            timeout=30_000,
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )
    assert [answer.error_code, answer.responses[0].partitions[0].error_code] == [0, 0]


def replicas_of(cluster: ClusterProcesses) -> list[int]:
    return list(cluster.metadata().topics[TOPIC].partitions[0].replicas)


@pytest.mark.long_faults
def test_without_faults_nothing_is_lost_either(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    with under_load(cluster, TOPIC) as load:
        load.keep_writing(60)
        load.expect_all_kept()
