"""Contract of all coordination stores: SQLite, SQLite behind a socket, a real ZooKeeper, and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from served_store import served_store

from penstock.cluster.coordination import (
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    Set,
)
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.memory import MemoryEnsemble
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.threads import ThreadPools

Scenario = Callable[[CoordinationStore], Awaitable[object]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=["embedded", "socket", "memory", pytest.param("zookeeper", marks=pytest.mark.process)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a scenario on a started store. Each call is a new session on the same tree."""
    ensemble = MemoryEnsemble()

    async def on_embedded(scenario: Scenario) -> None:
        threads = ThreadPools()
        store = EmbeddedStore(str(tmp_path / "metadata.sqlite"), threads)
        await store.start()
        await scenario(store)
        await store.close()
        threads.close()

    async def on_socket(scenario: Scenario) -> None:
        async with served_store(tmp_path) as client:
            store = client()
            await store.start()
            await scenario(store)
            await store.close()

    async def on_memory(scenario: Scenario) -> None:
        store = ensemble.client()
        await store.start()
        await scenario(store)
        await store.close()

    async def on_zookeeper(scenario: Scenario) -> None:
        threads = ThreadPools()
        store = ZooKeeperStore(request.getfixturevalue("zookeeper"), threads)
        await store.start()
        await scenario(store)
        await store.close()
        threads.close()

    runners = {
        "embedded": on_embedded,
        "socket": on_socket,
        "memory": on_memory,
        "zookeeper": on_zookeeper,
    }
    return lambda scenario: asyncio.run(runners[request.param](scenario))


async def settled(store: CoordinationStore) -> None:
    """Wait until the watch reports the last change, and with it all earlier ones."""
    heard = asyncio.Event()
    stop = store.watch("/settled", heard.set)
    await store.create("/settled")
    await asyncio.wait_for(heard.wait(), 10)
    heard.clear()
    await store.delete("/settled")
    await asyncio.wait_for(heard.wait(), 10)
    stop()


def test_created_node_is_read_back(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        assert await store.create("/a", b"one") == "/a"
        node = await store.get("/a")
        assert (node.data, node.version, node.ephemeral) == (b"one", 0, False)

    run(scenario)


def test_a_node_needs_its_parent(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        with pytest.raises(NoNode) as refusal:
            await store.create("/a/b")
        assert refusal.value.path == "/a"

    run(scenario)


def test_a_path_is_created_once(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a")
        with pytest.raises(NodeExists):
            await store.create("/a")

    run(scenario)


def test_missing_nodes_raise_no_node(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        for call in (store.get("/x"), store.children("/x"), store.set("/x", b""), store.delete("/x")):
            with pytest.raises(NoNode):
                await call

    run(scenario)


def test_get_many_returns_nodes_in_order_and_none_for_missing_ones(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a", b"1")
        await store.create("/b", b"2")
        nodes = await store.get_many(["/b", "/x", "/a"])
        assert [node and node.data for node in nodes] == [b"2", None, b"1"]

    run(scenario)


def test_children_are_sorted_names(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        for path in ("/p", "/p/c", "/p/a", "/p/b", "/p/a/deep"):
            await store.create(path)
        assert await store.children("/p") == ["a", "b", "c"]
        assert await store.children("/") == ["p"]
        await store.delete("/p/b")
        assert await store.children("/p") == ["a", "c"]

    run(scenario)


def test_set_increments_the_version_and_is_conditional(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a", b"0")
        assert (await store.set("/a", b"1", version=0)).version == 1
        with pytest.raises(BadVersion):
            await store.set("/a", b"2", version=0)
        assert (await store.set("/a", b"3")).version == 2
        assert (await store.get("/a")).data == b"3"

    run(scenario)


def test_delete_is_conditional_and_refuses_parents(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.delete("/a/b", version=3)
        await store.delete("/a/b", version=0)
        await store.delete("/a")
        assert await store.children("/") == []

    run(scenario)


def test_created_numbers_grow_and_survive_sets(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a")
        await store.create("/b")
        first, second = (await store.get("/a")).created, (await store.get("/b")).created
        await store.set("/a", b"x")
        await store.create("/c")
        assert first < second < (await store.get("/c")).created
        assert (await store.get("/a")).created == first

    run(scenario)


def test_created_numbers_grow_over_restarts(run: Run) -> None:
    seen: list[int] = []

    async def scenario(store: CoordinationStore) -> None:
        path = f"/n{len(seen)}"
        await store.create(path)
        seen.append((await store.get(path)).created)
        await store.delete(path)

    run(scenario)
    run(scenario)
    assert seen[0] < seen[1]


def test_sequential_nodes_count_all_children_ever_created(run: Run) -> None:
    async def first(store: CoordinationStore) -> None:
        await store.create("/q")
        assert await store.create("/q/n-", sequential=True) == "/q/n-0000000000"
        assert await store.create("/q/n-", sequential=True) == "/q/n-0000000001"
        await store.delete("/q/n-0000000001")
        await store.set("/q", b"changed")
        await store.create("/q/plain")
        assert await store.create("/q/n-", sequential=True) == "/q/n-0000000003"

    async def second(store: CoordinationStore) -> None:
        assert await store.create("/q/n-", sequential=True) == "/q/n-0000000004"

    run(first)
    run(second)


def test_ephemeral_nodes_end_with_their_session(run: Run) -> None:
    async def first(store: CoordinationStore) -> None:
        await store.create("/stays")
        await store.create("/goes", ephemeral=True)
        assert (await store.get("/goes")).ephemeral

    async def second(store: CoordinationStore) -> None:
        assert await store.children("/") == ["stays"]

    run(first)
    run(second)


def test_ephemeral_nodes_have_no_children(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/e", ephemeral=True)
        with pytest.raises(EphemeralParent):
            await store.create("/e/child")

    run(scenario)


def test_multi_returns_a_result_for_each_operation(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a", b"0")
        await store.create("/b")
        results = await store.multi(
            [Create("/c"), Create("/s", sequential=True), Set("/a", b"1", 0), Delete("/b", 0), Check("/a", 1)]
        )
        node = await store.get("/a")
        assert results == ["/c", "/s0000000003", node, None, None]
        assert node == Node(b"1", 1, node.created)

    run(scenario)


def test_multi_sees_its_own_earlier_operations(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.multi([Create("/a"), Create("/a/b", b"0"), Set("/a/b", b"1", 0), Check("/a/b", 1)])
        assert (await store.get("/a/b")).data == b"1"
        with pytest.raises(NotEmpty):
            await store.multi([Create("/a/c"), Delete("/a/b"), Delete("/a")])
        await store.multi([Delete("/a/b"), Delete("/a"), Create("/a", b"again")])
        assert await store.children("/a") == []
        assert (await store.get("/a")).version == 0

    run(scenario)


def test_multi_applies_all_operations_or_none(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a", b"0")
        before = await store.get("/a")
        with pytest.raises(BadVersion) as refusal:
            await store.multi([Set("/a", b"1"), Create("/b"), Create("/q", sequential=True), Check("/a", 7)])
        assert refusal.value.path == "/a"
        assert await store.get("/a") == before
        assert await store.children("/") == ["a"]
        assert await store.create("/q", sequential=True) == "/q0000000001"

    run(scenario)


@pytest.mark.parametrize("path", ["a", "/a/", "//a", "", "/a//b"])
def test_malformed_paths_raise_value_error(run: Run, path: str) -> None:
    async def scenario(store: CoordinationStore) -> None:
        with pytest.raises(ValueError):
            await store.create(path)

    run(scenario)


def test_watches_report_changes_of_node_and_children(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        heard: list[str] = []
        store.watch("/a", lambda: heard.append("a"))

        async def hears(times: int, call: Awaitable[object]) -> None:
            heard.clear()
            await call
            async with asyncio.timeout(10):
                while len(heard) < times:
                    await settled(store)
            await settled(store)
            assert heard == ["a"] * times

        await hears(1, store.create("/a"))
        await hears(0, store.create("/b"))
        await hears(1, store.set("/a", b"1"))
        await hears(1, store.create("/a/child"))
        await hears(0, store.set("/a/child", b"1"))
        await hears(1, store.delete("/a/child"))
        await hears(1, store.multi([Set("/a", b"2"), Set("/a", b"3")]))
        await hears(1, store.delete("/a"))

    run(scenario)


def test_a_watch_sees_the_change_and_not_a_refused_one(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/a", b"0")
        seen: list[asyncio.Task[Node]] = []
        store.watch("/a", lambda: seen.append(asyncio.ensure_future(store.get("/a"))))
        with pytest.raises(NodeExists):
            await store.multi([Set("/a", b"1"), Create("/a")])
        await store.set("/a", b"2")
        await settled(store)
        assert [node.data for node in await asyncio.gather(*seen)] == [b"2"]

    run(scenario)


def test_a_stopped_watch_is_silent(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        heard: list[str] = []
        stop = store.watch("/a", lambda: heard.append("first"))
        store.watch("/a", lambda: heard.append("second"))
        stop()
        stop()
        await store.create("/a")
        await settled(store)
        assert heard == ["second"]

    run(scenario)


def test_concurrent_writes_are_serialized(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/counter", b"0")

        async def increment() -> None:
            while True:
                node = await store.get("/counter")
                try:
                    await store.set("/counter", str(int(node.data) + 1).encode(), node.version)
                except BadVersion:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(10)))
        node = await store.get("/counter")
        assert (node.data, node.version) == (b"10", 10)

    run(scenario)


def test_connected_session_is_reported(tmp_path: Path, zookeeper: str) -> None:
    async def scenario() -> None:
        threads = ThreadPools()
        async with served_store(tmp_path) as client:
            for store in (
                EmbeddedStore(str(tmp_path / "m.sqlite"), threads),
                client(),
                MemoryEnsemble().client(),
                ZooKeeperStore(zookeeper, threads),
            ):
                states: list[SessionState] = []
                store.on_session(states.append)
                await store.start()
                assert states == [SessionState.CONNECTED]
                await store.close()
                assert states == [SessionState.CONNECTED]
        threads.close()

    asyncio.run(scenario())


def test_sequential_nodes_at_the_root_leave_the_root_alone(run: Run) -> None:
    async def scenario(store: CoordinationStore) -> None:
        await store.create("/n-", sequential=True)
        assert await store.children("/") == ["n-0000000000"]

    run(scenario)
    run(lambda store: store.create("/other"))
