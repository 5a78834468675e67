"""Members of an in-sync set that die leave it at once: nothing waits for them until a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from replication_cluster import Cluster, until

from penstock.replication import in_sync_writer

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
def test_a_follower_that_died_with_everything_holds_up_no_later_write(
    tmp_path: Path, machines: dict[int, str]
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.remove(3)
        await cluster.settled()
        await cluster.produce(b"after")
        assert set(cluster.state().isr) == {1, 2}

    run(tmp_path, machines, scenario)


@pytest.mark.parametrize("machines", [APART, TOGETHER])
def test_a_leader_that_died_holds_up_no_write_to_its_successor(
    tmp_path: Path, machines: dict[int, str]
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.remove(1)
        await cluster.elect(2)
        await cluster.produce(b"after")
        assert set(cluster.state().isr) == {2, 3}

    run(tmp_path, machines, scenario)


def test_the_dead_leave_all_sets_at_once_before_anything_waits_for_them(tmp_path: Path) -> None:
    """A client that writes to many partitions, a few at a time, would wait for each few anew."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.produce(b"before", index=1)
        await cluster.same(1)
        await cluster.remove(3)
        await until(lambda: all(set(cluster.state(index).isr) == {1, 2} for index in (0, 1)), "it is out")

    run(tmp_path, APART, scenario, partitions=2)
