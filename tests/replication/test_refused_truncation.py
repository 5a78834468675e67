"""Truncation that a follower refuses: it keeps committed records that its leader lacks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from replication_cluster import TOPIC, Cluster
from test_replication import run

from penstock.cluster.image import NO_LEADER
from penstock.config import Durability
from penstock.model import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from penstock.observability.alarms import AlarmKind
from penstock.replication import fetcher
from penstock.replication.replica import Replica
from penstock.replication.truncation import gives_up_committed
from penstock.storage import recovery_result
from penstock.storage.log_state import LogState
from support.eventually import eventually_async

NAME = TopicPartition(TOPIC, 0)
VALUES = [b"first", b"second", b"third"]


async def lead_with_an_empty_log(cluster: Cluster) -> None:
    """Let broker 3 lead, alone in the in-sync set and with an empty log."""
    for value in VALUES:
        await cluster.produce(value)
    await cluster.same()
    await cluster.remove(3)
    shutil.rmtree(cluster.directory / "3")
    cluster.record(0, leader=NO_LEADER, leader_epoch=LeaderEpoch(2), isr=(BrokerId(3),))
    await cluster.settled()
    await cluster.add(3)
    await cluster.elect(3)
    cluster.append(b"other")


def refused(cluster: Cluster, node: int) -> bool:
    alarms = cluster.nodes[BrokerId(node)].alarms.present
    return [(alarm.kind, alarm.partition) for alarm in alarms] == [(AlarmKind.TRUNCATION_REFUSED, NAME)]


def test_follower_refuses_to_truncate_below_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await lead_with_an_empty_log(cluster)
        await eventually_async(lambda: refused(cluster, 1) and refused(cluster, 2), "both refuse")
        alarm, *_ = cluster.nodes[BrokerId(1)].alarms.present
        assert "leader 3 in epoch 3 lacks records from offset 0 on" in alarm.detail
        assert "high watermark 3" in alarm.detail
        assert [cluster.nodes[BrokerId(node)].replica().log.log_end_offset for node in (1, 2)] == [3, 3]
        assert cluster.state().isr == (3,), "who refuses is not in sync"
        # An election that gives up the leader's records ends the refusal: that broker truncates and fetches
        # all records.
        await cluster.elect(1, isr=[1, 2])
        cluster.record(0, unclean_epoch=cluster.state().leader_epoch)
        await cluster.same()
        assert cluster.leader().log.log_end_offset == 3
        assert not any(node.alarms.present for node in cluster.nodes.values())

    run(Cluster(tmp_path), scenario)


def test_follower_that_truncates_committed_records_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "refuses_truncation", lambda *_: False)
    with pytest.raises(AssertionError, match="committed records are kept"):
        run(Cluster(tmp_path), keep_committed_records)


async def keep_committed_records(cluster: Cluster) -> None:
    await lead_with_an_empty_log(cluster)
    logs = [cluster.nodes[BrokerId(node)].replica().log for node in (1, 2)]
    await eventually_async(
        lambda: (refused(cluster, 1) and refused(cluster, 2)) or any(log.log_end_offset < 3 for log in logs),
        "both refuse, or one truncates",
    )
    assert [log.log_end_offset for log in logs] == [3, 3], "committed records are kept"


def test_follower_keeps_committed_records_that_its_leader_lacks(tmp_path: Path) -> None:
    run(Cluster(tmp_path), keep_committed_records)


def test_restarted_follower_refuses_by_the_high_watermark_it_has_kept(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await lead_with_an_empty_log(cluster)
        await cluster.remove(1)
        await cluster.add(1)
        await eventually_async(lambda: refused(cluster, 1), "it refuses")
        assert cluster.nodes[BrokerId(1)].replica().log.log_end_offset == 3

    run(Cluster(tmp_path), scenario)


async def keep_committed_records_after_an_unclean_election(cluster: Cluster) -> None:
    """No record tells of the epoch of the unclean election; the followers have agreed with its leader since."""
    for value in VALUES:
        await cluster.produce(value)
    await cluster.same()
    node = cluster.nodes[BrokerId(1)]
    await eventually_async(lambda: node.replica().log.high_watermark == 3, "records are committed")
    node.replicas.changed.clear()
    epoch = LeaderEpoch(cluster.state().leader_epoch + 1)
    cluster.record(0, leader=BrokerId(2), leader_epoch=epoch, unclean_epoch=epoch)
    await eventually_async(lambda: node.replica().log.committed_epoch == epoch, "it follows")
    assert node.replica() in node.replicas.changed, "the next checkpoint has the epoch"
    await cluster.remove(2)
    await cluster.remove(3)
    shutil.rmtree(cluster.directory / "3")
    cluster.record(0, leader=NO_LEADER, leader_epoch=LeaderEpoch(epoch + 1), isr=(BrokerId(3),))
    await cluster.settled()
    await cluster.remove(1)
    await cluster.add(1)
    await cluster.add(3)
    await cluster.elect(3)
    cluster.append(b"other")
    log = cluster.nodes[BrokerId(1)].replica().log
    await eventually_async(lambda: refused(cluster, 1) or log.log_end_offset < 3, "it has decided")
    assert log.log_end_offset == 3, "committed records are kept"


def test_restarted_follower_refuses_after_an_unclean_election_without_records(tmp_path: Path) -> None:
    run(Cluster(tmp_path), keep_committed_records_after_an_unclean_election)


def test_restart_that_forgets_the_epoch_of_the_high_watermark_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch after the restart is the one of the last committed record."""

    def state_without_epoch(*arguments: Any, **fields: Any) -> LogState:
        return LogState(*arguments, **fields | {"committed_epoch": NO_LEADER_EPOCH})

    monkeypatch.setattr(recovery_result, "LogState", state_without_epoch)
    with pytest.raises(AssertionError, match="committed records are kept"):
        run(Cluster(tmp_path), keep_committed_records_after_an_unclean_election)


def test_recorded_unclean_election_lets_followers_truncate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "REFUSED_RETRY_SECONDS", 0.05)

    async def scenario(cluster: Cluster) -> None:
        await lead_with_an_empty_log(cluster)
        await eventually_async(lambda: refused(cluster, 1), "it refuses")
        cluster.record(0, unclean_epoch=cluster.state().leader_epoch)
        await cluster.same()
        assert cluster.leader().log.log_end_offset == 1
        assert not any(node.alarms.present for node in cluster.nodes.values())

    run(Cluster(tmp_path), scenario)


def test_durability_os_lets_followers_truncate(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await lead_with_an_empty_log(cluster)
        await cluster.same()
        assert cluster.leader().log.log_end_offset == 1

    run(Cluster(tmp_path, topic_settings={"durability": "os"}), scenario)


@pytest.mark.parametrize(
    ("offset", "committed_epoch", "unclean_epoch", "durability", "expected"),
    [
        (9, 5, -1, Durability.AUTO, True),
        (9, 5, -1, Durability.FSYNC, True),
        (10, 5, -1, Durability.AUTO, False),
        (9, 5, 5, Durability.AUTO, True),
        (9, 5, 6, Durability.AUTO, False),
        (9, 5, -1, Durability.OS, False),
    ],
)
def test_committed_records_are_truncated_only_after_a_later_unclean_election(
    offset: int, committed_epoch: int, unclean_epoch: int, durability: Durability, expected: bool
) -> None:
    epochs = LeaderEpoch(committed_epoch), LeaderEpoch(unclean_epoch)
    assert gives_up_committed(Offset(offset), Offset(10), *epochs, durability) == expected
