"""Commits below min.insync.replicas: no record is committed that the eligible leaders lack."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from replication_cluster import Cluster
from test_replication import run

from penstock.cluster.image import ClusterImage
from penstock.model import BrokerId
from support.eventually import eventually_async

TWO_IN_SYNC = {"min.insync.replicas": "2"}


async def leave_alone(cluster: Cluster) -> None:
    """Leave broker 1 alone in the in-sync set; 2 and 3 are stopped."""
    await cluster.remove(2)
    await cluster.remove(3)
    await eventually_async(lambda: cluster.state().isr == (1,), "one is in sync")


def test_no_record_is_committed_under_min_isr(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"by three")
        await leave_alone(cluster)
        assert set(cluster.state().eligible) <= {2, 3}
        assert cluster.state().eligible
        assert (cluster.state().committed, cluster.state().sole_end) == (1, 1)
        leader = cluster.leader()
        waiting = cluster.append(b"by one")  # as with acks=1
        await leader.flushed()
        assert leader.log.high_watermark == 1
        assert not waiting.done()
        await cluster.add(2)
        assert await asyncio.wait_for(waiting, 10) is None
        assert cluster.state().isr == (1, 2)
        assert not cluster.state().has_eligible
        await cluster.same()

    run(Cluster(tmp_path, topic_settings=TWO_IN_SYNC), scenario)


def test_lower_min_in_sync_removes_eligible_leaders_before_the_next_commit(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"by three")
        await leave_alone(cluster)
        waiting = cluster.append(b"by one")
        image = cluster.image
        topic = image.topics["orders"]
        eligible_at_commit: list[bool] = []
        waiting.add_done_callback(lambda _: eligible_at_commit.append(cluster.state().has_eligible))
        cluster.show(with_min_in_sync(image, 1), topic.name)
        assert await asyncio.wait_for(waiting, 10) is None
        await asyncio.sleep(0)
        assert eligible_at_commit == [False]

    run(Cluster(tmp_path, topic_settings=TWO_IN_SYNC), scenario)


def with_min_in_sync(image: ClusterImage, count: int) -> ClusterImage:
    topic = image.topics["orders"]
    return image.with_topics([replace(topic, configs={"min.insync.replicas": str(count)})])


def test_sole_replica_commits_records_below_min_insync_replicas(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"alone")
        assert not cluster.state().has_eligible

    run(Cluster(tmp_path, topic_settings=TWO_IN_SYNC), scenario, count=1)


def test_new_leader_commits_only_after_other_eligible_leaders_are_in_sync(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"by three")
        await cluster.remove(3)
        cluster.record(0, isr=(BrokerId(1),), eligible=(BrokerId(2), BrokerId(3)))
        await cluster.elect(1)
        waiting = cluster.append(b"more")
        await eventually_async(lambda: cluster.state().isr == (1, 2), "broker 2 is in sync again")
        assert await asyncio.wait_for(waiting, 10) is None
        assert not cluster.state().has_eligible

    run(Cluster(tmp_path, topic_settings=TWO_IN_SYNC), scenario)
