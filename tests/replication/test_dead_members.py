"""Dead members of an in-sync set leave it at once: no commit waits for a tick, or for another write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from replication_cluster import WAIT_SECONDS, Cluster

from penstock.model import BrokerId
from penstock.replication import in_sync_writer
from support.eventually import eventually_async

SETTINGS = {"replica.lag.time.max.ms": "600000"}
APART = {1: "one", 2: "two", 3: "three"}
TOGETHER = {1: "one", 2: "one", 3: "one"}


@pytest.fixture(autouse=True)
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sync_writer, "_MAX_TICK_SECONDS", 600.0)


def run(
    directory: Path,
    machines: dict[int, str],
    scenario: Callable[[Cluster], Awaitable[None]],
    partitions: int = 1,
) -> None:
    async def body() -> None:
        cluster = Cluster(directory, SETTINGS, machines)
        await cluster.start(partitions=partitions)
        try:
            await cluster.produce(b"before")
            await cluster.same()
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(body())


@pytest.mark.parametrize("machines", [APART, TOGETHER])
def test_dead_follower_without_lag_delays_no_later_write(tmp_path: Path, machines: dict[int, str]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.remove(3)
        await cluster.settled()
        await cluster.produce(b"after")
        assert set(cluster.state().isr) == {1, 2}

    run(tmp_path, machines, scenario)


@pytest.mark.parametrize("machines", [APART, TOGETHER])
def test_dead_leader_delays_no_write_to_the_next_leader(tmp_path: Path, machines: dict[int, str]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.remove(1)
        await cluster.elect(2)
        await cluster.produce(b"after")
        assert set(cluster.state().isr) == {2, 3}

    run(tmp_path, machines, scenario)


def test_dead_brokers_leave_all_in_sync_sets_before_a_write_waits(tmp_path: Path) -> None:
    """A client that writes to many partitions, a few at a time, would wait once for each few."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"before", index=1)
        await cluster.same(1)
        await cluster.remove(3)
        await eventually_async(
            lambda: all(set(cluster.state(index).isr) == {1, 2} for index in (0, 1)), "it is out"
        )

    run(tmp_path, APART, scenario, partitions=2)


def test_records_of_the_last_machine_are_committed_without_another_write(tmp_path: Path) -> None:
    """The follower was not asked to fsync while there were two machines; now only fsynced records count."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.nodes[BrokerId(3)].replicas._fetchers.stop()
        await cluster.nodes[BrokerId(2)].replica().flushed()
        committed = cluster.append(b"the last for a long time")
        await eventually_async(
            lambda: cluster.nodes[BrokerId(2)].replica().log.log_end_offset == 2, "it is copied"
        )
        await cluster.remove(3)
        assert await asyncio.wait_for(committed, WAIT_SECONDS) is None
        assert set(cluster.state().isr) == {1, 2}

    run(tmp_path, {1: "one", 2: "one", 3: "two"}, scenario)


def test_follower_reports_its_flushed_offset_to_the_next_leader(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        follower = cluster.nodes[BrokerId(2)]
        flush, release = follower.threads.run, asyncio.Event()

        async def late(work: Callable[[], Any]) -> Any:
            await release.wait()
            return await flush("flush", work)

        def run_late(pool: Any, work: Callable[[], Any]) -> asyncio.Future[Any]:
            return asyncio.ensure_future(late(work)) if pool == "flush" else flush(pool, work)

        follower.threads.run = run_late  # type: ignore[method-assign]
        cluster.append(b"the last for a long time")
        await eventually_async(
            lambda: all(node.replica().log.log_end_offset == 2 for node in cluster.nodes.values())
        )
        await cluster.elect(3)
        known = cluster.leader().partition.in_sync.followers[BrokerId(2)]
        await eventually_async(lambda: known.log_end == 2, "it has said what it has")
        release.set()
        await eventually_async(lambda: cluster.leader().log.high_watermark == 2, "it is committed")

    run(tmp_path, TOGETHER, scenario)
