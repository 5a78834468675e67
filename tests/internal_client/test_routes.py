from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork


class KnownTopic(Routes):
    """A cluster with one topic, without any broker."""

    def __init__(self) -> None:
        super().__init__(TcpNetwork(), [Address("nowhere", 1)], "test")
        self.questions = 0
        self.partitions = 1

    async def at_any(self, request: Any) -> Any:
        return await request(self)

    async def request(self, api_key: int, version: int, fields: Any) -> Any:
        self.questions += 1
        await asyncio.sleep(0)
        partitions = [
            SimpleNamespace(
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                error_code=0,
            )
            for number in range(self.partitions)
        ]
        topic = SimpleNamespace(name="a", topic_id=UUID(int=1), is_internal=False, partitions=partitions)
        return SimpleNamespace(cluster_id="c", controller_id=1, brokers=[], topics=[topic])


async def test_concurrent_lookups_share_one_metadata_request() -> None:
    routes = KnownTopic()
    found = await asyncio.gather(*(routes.topic("a") for _ in range(5)))
    assert {route.name for route in found} == {"a"}
    assert routes.questions == 1


async def test_topic_forgotten_during_its_read_is_found() -> None:
    routes = KnownTopic()
    asking = asyncio.create_task(routes.topic("a"))
    await asyncio.sleep(0)
    routes._reading["a"].add_done_callback(lambda _: routes.forget("a"))
    assert (await asking).name == "a"


async def test_missing_topic_raises_unknown_topic() -> None:
    with pytest.raises(BrokerError) as caught:
        await KnownTopic().topic("b")
    assert caught.value.code is ErrorCode.unknown_topic_or_partition


async def test_added_partition_is_found_on_demand() -> None:
    routes = KnownTopic()
    await routes.topic("a")
    routes.partitions = 3
    with pytest.raises(BrokerError) as caught:
        await routes.leader("a", 2)
    assert caught.value.code is ErrorCode.leader_not_available, "no broker is there, but the partition is"
    with pytest.raises(BrokerError) as caught:
        await routes.leader("a", 3)
    assert caught.value.code is ErrorCode.unknown_topic_or_partition


async def test_stale_metadata_is_used_and_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = KnownTopic()
    await routes.topic("a")
    routes.partitions = 3
    monkeypatch.setattr("penstock.internal_client.routes.MAX_AGE_SECONDS", -1.0)
    assert len((await routes.topic("a")).partitions) == 1
    await asyncio.gather(*routes._reading.values())
    assert len((await routes.topic("a")).partitions) == 3
