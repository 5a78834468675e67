"""Random operations on every store and on a simple model: the results are equal."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from served_store import served_store

from penstock.cli.cluster.zookeeper_process import ZooKeeperProcess
from penstock.cluster.coordination import (
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    Delete,
    EphemeralParent,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    StoreError,
)
from penstock.cluster.coordination import Node as StoredNode
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.memory import MemoryEnsemble
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.threads import ThreadPools

Open = Callable[[], Awaitable[CoordinationStore]]
RESTART = "restart"
paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
versions = st.integers(-1, 2)
datas = st.binary(max_size=3)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, datas, st.booleans(), st.booleans()),
    st.builds(Create, paths, datas),
    st.builds(Set, paths, datas, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
steps = st.one_of(st.lists(operations, min_size=1, max_size=4), st.just(RESTART))


@dataclass(frozen=True)
class Node:
    data: bytes
    version: int = 0
    ephemeral: bool = False
    sequence: int = 0


@dataclass
class Model:
    """Simple model of the contract, with a full copy of the tree for each multi."""

    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"")})

    def multi(self, operations: list[Operation]) -> tuple[type[StoreError], str] | None:
        nodes = dict(self.nodes)
        try:
            for operation in operations:
                self._run(nodes, operation)
        except StoreError as error:
            return type(error), error.path
        self.nodes = nodes
        return None

    def restart(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if not node.ephemeral}

    @staticmethod
    def _run(nodes: dict[str, Node], operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0] or "/"
            if parent not in nodes:
                raise NoNode(parent)
            if nodes[parent].ephemeral:
                raise EphemeralParent(parent)
            if operation.sequential:
                path += f"{nodes[parent].sequence:010d}"
            if path in nodes:
                raise NodeExists(path)
            nodes[parent] = replace(nodes[parent], sequence=nodes[parent].sequence + 1)
            nodes[path] = Node(operation.data, 0, operation.ephemeral)
            return
        if path not in nodes:
            raise NoNode(path)
        if operation.version not in (-1, nodes[path].version):
            raise BadVersion(path)
        if isinstance(operation, Set):
            nodes[path] = replace(nodes[path], data=operation.data, version=nodes[path].version + 1)
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in nodes):
                raise NotEmpty(path)
            del nodes[path]

    def seen(self) -> dict[str, tuple[bytes, int, bool]]:
        return {path: (node.data, node.version, node.ephemeral) for path, node in self.nodes.items()}


async def seen(store: CoordinationStore, path: str = "/") -> dict[str, tuple[bytes, int, bool]]:
    node = await store.get(path)
    found = {path: (node.data, node.version, node.ephemeral)}
    for name in await store.children(path):
        found |= await seen(store, f"{path.rstrip('/')}/{name}")
    return found


async def outcome(store: CoordinationStore, step: list[Operation]) -> object:
    try:
        results = await store.multi(step)
    except StoreError as error:
        return type(error), error.path
    # Stores number their changes differently.
    return [replace(result, created=0) if isinstance(result, StoredNode) else result for result in results]


async def compare(open_stores: list[Open], steps: list[list[Operation] | str]) -> None:
    model = Model()
    stores = [await open_store() for open_store in open_stores]
    for step in steps:
        if isinstance(step, str):
            model.restart()
            for store in stores:
                await store.close()
            stores = [await open_store() for open_store in open_stores]
            continue
        first, *others = [await outcome(store, step) for store in stores]
        refusal = model.multi(step)
        assert (isinstance(first, list) and refusal is None) or first == refusal
        assert others == [first] * len(others)
    assert [await seen(store) for store in stores] == [model.seen()] * len(stores)
    for store in stores:
        await store.close()


def opening(make: Callable[[], CoordinationStore]) -> Open:
    async def open_store() -> CoordinationStore:
        store = make()
        await store.start()
        return store

    return open_store


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12))
def test_stores_and_model_agree(steps: list[list[Operation] | str]) -> None:
    threads = ThreadPools()
    ensemble = MemoryEnsemble()
    with tempfile.TemporaryDirectory() as directory:
        embedded = opening(lambda: EmbeddedStore(f"{directory}/metadata.sqlite", threads))
        asyncio.run(compare([embedded, opening(ensemble.client)], steps))
    threads.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, max_size=12))
def test_store_behind_a_socket_and_model_agree(steps: list[list[Operation] | str]) -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with served_store(Path(directory)) as client:
                await compare([opening(client), opening(MemoryEnsemble().client)], steps)

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(steps, max_size=12))
def test_zookeeper_twin_and_model_agree(
    zookeeper_server: ZooKeeperProcess, chroots: Iterator[int], steps: list[list[Operation] | str]
) -> None:
    threads = ThreadPools()
    ensemble = MemoryEnsemble()
    hosts = f"127.0.0.1:{zookeeper_server.port}/properties/{next(chroots)}"
    zookeeper = opening(lambda: ZooKeeperStore(hosts, threads))
    asyncio.run(compare([zookeeper, opening(ensemble.client)], steps))
    threads.close()
