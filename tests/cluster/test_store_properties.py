"""Random operations on the embedded store, its in-memory twin and a plain model: all three always agree."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

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
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.memory import MemoryEnsemble
from penstock.threads import ThreadPools

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
    """The contract, written as plainly as can be: a copy of everything for each multi."""

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
                nodes[parent] = replace(nodes[parent], sequence=nodes[parent].sequence + 1)
            if path in nodes:
                raise NodeExists(path)
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
        return await store.multi(step)
    except StoreError as error:
        return type(error), error.path


async def compare(directory: str, threads: ThreadPools, steps: list[list[Operation] | str]) -> None:
    ensemble, model = MemoryEnsemble(), Model()
    twin: CoordinationStore = ensemble.client()
    embedded: CoordinationStore = EmbeddedStore(f"{directory}/metadata.sqlite", threads)
    await twin.start()
    await embedded.start()
    for step in steps:
        if isinstance(step, str):
            model.restart()
            await twin.close()
            await embedded.close()
            twin, embedded = ensemble.client(), EmbeddedStore(f"{directory}/metadata.sqlite", threads)
            await twin.start()
            await embedded.start()
            continue
        answer = await outcome(embedded, step)
        assert answer == await outcome(twin, step)
        refusal = model.multi(step)
        assert (isinstance(answer, list) and refusal is None) or answer == refusal
    assert await seen(embedded) == await seen(twin) == model.seen()
    await embedded.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12))
def test_stores_and_model_agree(steps: list[list[Operation] | str]) -> None:
    threads = ThreadPools()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(str(Path(directory)), threads, steps))
    threads.close()
