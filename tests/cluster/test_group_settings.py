"""Group configs in the coordination store: after a restart, and in a store of a version without them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from node import ClusterNode

from penstock.cluster import znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.coordination import CoordinationStore, Delete
from penstock.cluster.embedded import EmbeddedStore
from penstock.config.resources import ConfigResourceType
from penstock.threads import ThreadPools

SESSION = "consumer.session.timeout.ms"


def with_node(tmp_path: Path, scenario: Callable[[ClusterNode, CoordinationStore], Awaitable[None]]) -> None:
    async def body() -> None:
        threads = ThreadPools()
        store = EmbeddedStore(str(tmp_path / "metadata.sqlite"), threads)
        await store.start()
        node = ClusterNode(store)
        await node.load()
        await scenario(node, store)
        await node.stop()
        await store.close()
        threads.close()

    asyncio.run(body())


async def set_session(node: ClusterNode, group_id: str, value: str) -> None:
    change = ConfigChange(ConfigResourceType.GROUP, group_id, [ConfigAlteration(SESSION, value)])
    assert await node.administration.alter_configs([change]) == [None]


def test_group_configs_survive_restart(tmp_path: Path) -> None:
    async def before(node: ClusterNode, _: CoordinationStore) -> None:
        await set_session(node, "a/b", "50000")
        await set_session(node, "..", "60000")

    async def after(node: ClusterNode, _: CoordinationStore) -> None:
        assert node.metadata.image.group_overrides() == {"a/b": {SESSION: "50000"}, "..": {SESSION: "60000"}}
        await set_session(node, "a/b", "70000")
        assert node.metadata.image.group_overrides()["a/b"] == {SESSION: "70000"}

    with_node(tmp_path, before)
    with_node(tmp_path, after)


def test_store_without_group_configs_is_upgraded(tmp_path: Path) -> None:
    async def before(_: ClusterNode, store: CoordinationStore) -> None:
        await store.multi([Delete(znodes.GROUP_CONFIGS)])

    async def after(node: ClusterNode, _: CoordinationStore) -> None:
        assert node.metadata.image.group_configs == {}
        await set_session(node, "g", "50000")

    with_node(tmp_path, before)
    with_node(tmp_path, after)
