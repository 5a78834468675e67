"""Connections between brokers: requests that share a connection fail alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

from penstock.cluster.metadata import ClusterMetadata
from penstock.config import REPLICA_SOCKET_TIMEOUT_MS
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.replication.replica_manager import ReplicaManager
from penstock.transactions.links import BrokerLinks

OTHER = BrokerId(2)


class World:
    """A broker whose connections open when the test says so."""

    def __init__(self) -> None:
        self.broker = SimpleNamespace(epoch=1, host="other", port=9092)
        self.image = SimpleNamespace(brokers={OTHER: self.broker})
        self.config = {REPLICA_SOCKET_TIMEOUT_MS: 30_000}
        self.is_open = asyncio.Event()
        self.opened = 0
        metadata, replicas, network = (
            cast(ClusterMetadata, self),
            cast(ReplicaManager, None),
            cast(Network, None),
        )
        self.links = BrokerLinks(BrokerId(1), metadata, replicas, network, cast("object", None))  # type: ignore[arg-type]

    async def connect(self, *_: object) -> BrokerConnection:
        await self.is_open.wait()
        self.opened += 1
        return cast(BrokerConnection, SimpleNamespace(is_connected=True, close=lambda: None))

    def request(self) -> asyncio.Task[str]:
        async def answer(_: BrokerConnection) -> str:
            return "answer"

        return asyncio.get_running_loop().create_task(self.links.send(OTHER, answer))


async def test_cancelled_request_leaves_the_shared_connection_open() -> None:
    world = World()
    with patch.object(BrokerLinks, "_connect", world.connect):
        first, second = world.request(), world.request()
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        world.is_open.set()
        assert await second == "answer"
        assert first.cancelled()
        assert world.opened == 1


async def test_requests_to_a_broker_fail_when_it_registers_again() -> None:
    world = World()
    with patch.object(BrokerLinks, "_connect", world.connect):
        waiting = world.request()
        await asyncio.sleep(0)
        world.broker.epoch = 2
        following = world.request()
        await asyncio.sleep(0)
        world.is_open.set()
        with pytest.raises(ConnectionAbortedError, match="broker 2"):
            await waiting
        assert await following == "answer"


async def test_closed_broker_link_fails_requests_with_an_error() -> None:
    world = World()
    with patch.object(BrokerLinks, "_connect", world.connect):
        waiting = world.request()
        await asyncio.sleep(0)
        world.links.close()
        with pytest.raises(ConnectionAbortedError):
            await waiting
