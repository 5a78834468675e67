"""Settings of groups in the coordination store: there after a restart, and in a store older than groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from penstock.cluster import znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange, ConfigResourceType
from penstock.cluster.controller import Controller
from penstock.cluster.coordination import CoordinationStore, Delete
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import BrokerConfig
from penstock.model import BrokerId
from penstock.threads import ThreadPools

SESSION = "consumer.session.timeout.ms"


def with_controller(
    tmp_path: Path, scenario: Callable[[Controller, CoordinationStore], Awaitable[None]]
) -> None:
    async def body() -> None:
        threads = ThreadPools()
        store = EmbeddedStore(str(tmp_path / "metadata.sqlite"), threads)
        await store.start()
        controller = Controller(store, BrokerId(1), BrokerConfig(), Random(1))
        await controller.load()
        await scenario(controller, store)
        await store.close()
        threads.close()

    asyncio.run(body())


async def set_session(controller: Controller, group_id: str, value: str) -> None:
    change = ConfigChange(ConfigResourceType.GROUP, group_id, [ConfigAlteration(SESSION, value)])
    assert await controller.alter_configs([change]) == [None]


def test_settings_of_groups_survive_a_restart(tmp_path: Path) -> None:
    async def before(controller: Controller, _: CoordinationStore) -> None:
        await set_session(controller, "a/b", "50000")
        await set_session(controller, "..", "60000")

    async def after(controller: Controller, _: CoordinationStore) -> None:
        assert controller.image.group_overrides() == {"a/b": {SESSION: "50000"}, "..": {SESSION: "60000"}}
        await set_session(controller, "a/b", "70000")
        assert controller.image.group_overrides()["a/b"] == {SESSION: "70000"}

    with_controller(tmp_path, before)
    with_controller(tmp_path, after)


def test_a_store_from_before_there_were_groups_is_made_ready(tmp_path: Path) -> None:
    async def before(_: Controller, store: CoordinationStore) -> None:
        await store.multi([Delete(znodes.GROUP_CONFIGS)])

    async def after(controller: Controller, _: CoordinationStore) -> None:
        assert controller.image.group_configs == {}
        await set_session(controller, "g", "50000")

    with_controller(tmp_path, before)
    with_controller(tmp_path, after)
