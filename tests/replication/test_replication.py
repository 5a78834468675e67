"""Replicas of several brokers, over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from replication_cluster import TOPIC, WAIT_SECONDS, Cluster

from penstock.errors import BrokerError, ErrorCode, WouldBlock
from penstock.model import BrokerId, Offset
from penstock.records.log_slice import LogSlice
from penstock.replication.fetcher import Fetcher
from penstock.storage.log import Log
from penstock.wire.fetch_client import FetchResponse
from support.eventually import eventually_async

PATIENT = {"replica.lag.time.max.ms": "600000"}


def run(cluster: Cluster, scenario: Callable[[Cluster], Awaitable[None]], **options: int) -> None:
    async def body() -> None:
        await cluster.start(**options)
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(body())


@pytest.mark.parametrize("durability", ["auto", "os", "fsync"])
def test_many_partitions_are_copied_and_committed(tmp_path: Path, durability: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await asyncio.gather(
            *(
                cluster.produce(b"%d-%d" % (index, turn), b"second", index=index)
                for index in range(30)
                for turn in range(10)
            )
        )
        for index in range(30):
            await cluster.same(index)
            assert cluster.leader(index).log.log_end_offset == 20

    run(Cluster(tmp_path, topic_settings={"durability": durability}), scenario, partitions=30)


def test_brokers_on_one_machine_commit_records_that_all_have_fsynced(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for turn in range(5):
            await cluster.produce(b"%d" % turn)
            for node in cluster.nodes.values():
                assert node.replica().log.flushed_offset >= turn + 1
        await cluster.same()

    run(Cluster(tmp_path, PATIENT, machines={1: "one", 2: "one", 3: "one"}), scenario)


def test_new_leader_has_all_committed_records(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for turn in range(12):
            await cluster.produce(b"%d" % turn)
            await cluster.elect(turn % 3 + 1)
            assert cluster.leader().log.log_end_offset == turn + 1
        await cluster.same()

    run(Cluster(tmp_path), scenario)


def test_waiting_requests_fail_when_the_broker_stops_leading(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        old = cluster.leader()
        await cluster.remove(2)
        await cluster.remove(3)
        waiting = cluster.append(b"alone")
        cluster.nodes[BrokerId(1)].replicas.on_lost_session()
        outcome = await waiting
        assert isinstance(outcome, BrokerError)
        assert outcome.code is ErrorCode.not_leader_or_follower
        with pytest.raises(BrokerError) as refused:
            cluster.append(b"more", replica=old)
        assert refused.value.code is ErrorCode.not_leader_or_follower
        with pytest.raises(BrokerError):
            cluster.nodes[BrokerId(1)].replicas.get(TOPIC, 0)

    run(Cluster(tmp_path, PATIENT), scenario)


def test_old_leader_commits_no_record_and_is_truncated(tmp_path: Path) -> None:
    """The old leader has stale metadata and still accepts writes; its followers follow another broker."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"committed")
        zombie = cluster.nodes[BrokerId(1)]
        old = cluster.leader()
        zombie.is_reachable = False
        await cluster.elect(2)
        await eventually_async(lambda: cluster.nodes[BrokerId(3)].replica().partition.leader_epoch == 2)
        waiting = [cluster.append(b"lost %d" % turn, replica=old) for turn in range(3)]
        cluster.record(0, isr=(BrokerId(2), BrokerId(3)))
        await cluster.produce(b"kept")
        assert not any(each.done() for each in waiting), "nobody but the zombie has these"
        assert old.log.high_watermark == 1
        zombie.is_reachable = True
        cluster.record(0, isr=cluster.state().isr)
        outcomes = await asyncio.gather(*waiting)
        assert {each.code for each in outcomes if isinstance(each, BrokerError)} == {
            ErrorCode.not_leader_or_follower
        }
        await cluster.same()
        assert old.log.log_end_offset == 2

    run(Cluster(tmp_path), scenario)


def test_logs_that_diverged_in_several_epochs_are_made_equal(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"common")
        nodes = cluster.nodes
        for turn in range(6):
            leader = turn % 3 + 1
            for node in nodes.values():
                node.is_reachable = node.id == leader
            await cluster.elect(leader)
            replica = cluster.leader()
            for number in range(turn % 2 + 1):
                cluster.append(b"%d %d" % (turn, number), replica=replica)
        for node in nodes.values():
            node.is_reachable = True
        await cluster.elect(2)
        await cluster.produce(b"last")
        await cluster.same()

    run(Cluster(tmp_path, PATIENT), scenario)


def test_restarted_follower_continues_at_its_log_end(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"before")
        await cluster.remove(3)
        await cluster.produce(b"meanwhile")
        assert set(cluster.state().isr) == {1, 2}
        await cluster.add(3)
        await cluster.produce(b"after")
        await eventually_async(lambda: set(cluster.state().isr) == {1, 2, 3}, "it is in sync again")
        await cluster.same()

    run(Cluster(tmp_path), scenario)


def test_slow_follower_leaves_the_in_sync_set_and_rejoins(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first")
        slow = cluster.nodes[BrokerId(3)]
        slow.replicas._fetchers.unfollow(slow.replica())
        started = asyncio.get_running_loop().time()
        await cluster.produce(b"second")
        assert asyncio.get_running_loop().time() - started > 0.2, "it had to leave first"
        assert set(cluster.state().isr) == {1, 2}
        slow.replicas._fetchers.follow(slow.replica(), BrokerId(1))
        await eventually_async(lambda: set(cluster.state().isr) == {1, 2, 3}, "it is in sync again")
        await cluster.same()

    run(Cluster(tmp_path), scenario)


def test_a_hung_follower_leaves_in_time_after_the_wall_clock_was_set_back(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first")
        cluster.clock.ahead_ms = -3_600_000
        hung = cluster.nodes[BrokerId(3)]
        hung.replicas._fetchers.unfollow(hung.replica())
        await cluster.produce(b"second")
        assert set(cluster.state().isr) == {1, 2}

    run(Cluster(tmp_path), scenario)


def test_followers_stay_in_sync_when_the_wall_clock_is_set_forward(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first")
        followers = [cluster.nodes[BrokerId(number)] for number in (2, 3)]
        for each in followers:
            each.replicas._fetchers.unfollow(each.replica())
        committed = cluster.append(b"second")
        cluster.clock.ahead_ms = 30_000
        assert await cluster.nodes[BrokerId(1)].writer._propose() == []
        for each in followers:
            each.replicas._fetchers.follow(each.replica(), BrokerId(1))
        assert await asyncio.wait_for(committed, WAIT_SECONDS) is None
        assert set(cluster.state().isr) == {1, 2, 3}

    run(Cluster(tmp_path, {"replica.lag.time.max.ms": "20000"}), scenario)


def test_cold_records_beyond_the_response_limit_come_with_a_later_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_cold(log: Log) -> None:
        read = log.read

        def read_cold(offset: Offset, max_bytes: int, *, wait: bool = False, **limits: Any) -> LogSlice:
            if not wait and offset < log.log_end_offset:
                raise WouldBlock
            return read(offset, max_bytes, wait=wait, **limits)

        monkeypatch.setattr(log, "read", read_cold)

    async def scenario(cluster: Cluster) -> None:
        slow, led_by_one = cluster.nodes[BrokerId(3)], (0, 3)
        for index in led_by_one:
            slow.replicas._fetchers.unfollow(slow.replica(index))
            cluster.append(b"x" * 2000, index=index)
        for index in led_by_one:
            make_cold(cluster.nodes[BrokerId(1)].replica(index).log)
        for index in led_by_one:
            slow.replicas._fetchers.follow(slow.replica(index), BrokerId(1))
        copies = [slow.replica(index).log for index in led_by_one]
        await eventually_async(
            lambda: all(log.log_end_offset == 1 for log in copies), "both have been copied"
        )

    room_for_one = {"replica.fetch.response.max.bytes": str((1 << 20) + 1000)}
    run(Cluster(tmp_path, PATIENT | room_for_one), scenario, partitions=4)


def test_replica_with_newer_metadata_than_its_leader_joins_the_in_sync_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, answered = Fetcher.take, []

    def noting_take(fetcher: Fetcher, response: FetchResponse, session_epoch: int) -> None:
        if fetcher._context.node_id == 4:
            answered.extend(response.topics)
        take(fetcher, response, session_epoch)

    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first")
        await cluster.add(4)
        monkeypatch.setattr(Fetcher, "take", noting_take)
        leader = cluster.nodes[BrokerId(1)]
        leader.is_reachable = False
        cluster.record(0, replicas=tuple(map(BrokerId, (1, 2, 3, 4))))
        await eventually_async(lambda: bool(answered), "an answer to the new replica")
        leader.is_reachable = True
        cluster.show(cluster.image, TOPIC)
        await eventually_async(lambda: set(cluster.state().isr) == {1, 2, 3, 4}, "it is in sync")
        await cluster.same()

    run(Cluster(tmp_path, PATIENT), scenario)


def test_replicas_rejoin_the_in_sync_set_despite_unknown_write_outcomes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.loses_answers = True
        await cluster.produce(b"first")
        await cluster.remove(3)
        await cluster.produce(b"second")
        await cluster.add(3)
        await eventually_async(lambda: set(cluster.state().isr) == {1, 2, 3}, "it is in sync again")
        await cluster.produce(b"third")
        await cluster.same()

    run(Cluster(tmp_path), scenario)


def test_follower_behind_the_log_start_restarts_at_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"0")
        await cluster.remove(3)
        for turn in range(1, 5):
            await cluster.produce(b"%d" % turn)
        await eventually_async(
            lambda: all(node.replica().log.high_watermark == 5 for node in cluster.nodes.values())
        )
        cluster.leader().log.advance_log_start(cluster.leader().log.log_end_offset)
        await cluster.add(3)
        await eventually_async(lambda: cluster.nodes[BrokerId(3)].replica().log.log_start_offset == 5)
        await cluster.produce(b"after")
        await eventually_async(lambda: cluster.nodes[BrokerId(3)].replica().log.high_watermark == 6)

    run(Cluster(tmp_path), scenario)


def test_broker_with_another_secret_fetches_no_record(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.settings["cluster.secret"] = "of others"
        await cluster.remove(3)
        await cluster.add(3)
        cluster.record(0, leader_epoch=cluster.state().leader_epoch + 1)
        await cluster.produce(b"first")
        await eventually_async(lambda: any("cluster.secret" in line for line in cluster.lines), "a refusal")
        assert cluster.nodes[BrokerId(3)].replica().log.log_end_offset == 0

    run(Cluster(tmp_path), scenario)


def test_in_sync_set_under_min_isr_is_noticed_before_and_after_an_append(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.leader()
        assert not leader.refuses_acks_all
        await cluster.remove(2)
        await cluster.remove(3)
        waiting = cluster.append(b"alone")
        assert not leader.refuses_acks_all, "a smaller set counts when it is recorded"
        await eventually_async(lambda: leader.refuses_acks_all, "one is in sync")
        await cluster.add(2)
        await eventually_async(lambda: not leader.refuses_acks_all, "two are in sync")
        assert await waiting is None

    run(Cluster(tmp_path, topic_settings={"min.insync.replicas": "2"}), scenario)


def test_single_replica_is_known_while_a_reassignment_adds_replicas(tmp_path: Path) -> None:
    """A produce with acks=1 to a single replica waits until the record can be read."""

    async def scenario(cluster: Cluster) -> None:
        one, two = BrokerId(1), BrokerId(2)
        await cluster.elect(1, isr=[1])
        cluster.record(0, replicas=(one,), isr=(one,))
        await cluster.settled()
        assert cluster.leader().is_only_replica
        cluster.record(0, replicas=(one, two), adding_replicas=(two,), target_replicas=(two,))
        await cluster.settled()
        assert cluster.leader().is_only_replica
        await eventually_async(lambda: two in cluster.state().isr, "the added replica is in sync")
        assert cluster.leader().is_only_replica
        await cluster.elect(2)
        assert cluster.leader().is_only_replica
        cluster.record(0, adding_replicas=(), target_replicas=())
        await cluster.settled()
        assert not cluster.leader().is_only_replica, "it has two replicas for good"

    run(Cluster(tmp_path), scenario)


def test_topic_deleted_during_replication_leaves_no_files(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first")
        cluster.show(cluster.image.without_topics([TOPIC]), TOPIC)
        await cluster.settled()
        for node in cluster.nodes.values():
            assert len(node.replicas) == 0
            assert len(node.logs) == 0

    run(Cluster(tmp_path), scenario)


def test_waiting_follower_fetch_ends_when_the_follower_has_news(tmp_path: Path) -> None:
    """News of a follower, a flush or a new partition, end the wait at its leader."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"first", index=0)
        await cluster.elect(2, index=0)
        await cluster.elect(1, index=1)
        await cluster.produce(b"second", index=0)
        await cluster.produce(b"third", index=1)

    settings = {**PATIENT, "replica.fetch.wait.max.ms": "600000"}
    run(Cluster(tmp_path, settings, topic_settings={"durability": "fsync"}), scenario, partitions=3)
