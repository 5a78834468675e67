"""Memory of connections with TLS and a login that do nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from login_storm import PASSWORD, Ground, connect

from penstock.internal_client.client import InternalClient
from penstock.net.broker_connection import BrokerConnection
from support.eventually import eventually_async

FIRST = 400
"""Connections that are not counted: the first ones load modules and fill pools, 30.3 to 30.6 KB each in three runs."""
CONNECTIONS = 800
MAX_BYTES = 30_000


@pytest.mark.usefixtures("starts_processes")
def test_idle_connection_with_tls_costs_at_most_30_kb(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.broker.port = ground.plain.port

    async def scenario() -> None:
        async with InternalClient.to(str(ground.plain), "test", 30.0) as client:
            await client.users.set_password("alice", PASSWORD)
        network = ground.network("alice", PASSWORD, has_tls=True)

        async def open_many(count: int) -> list[BrokerConnection]:
            return list(await asyncio.gather(*(connect(network, ground.tls) for _ in range(count))))

        opened = await open_many(FIRST)
        await asyncio.sleep(2)  # the broker returns memory after a second without handshakes
        before = ground.memory_bytes()
        opened += await open_many(CONNECTIONS)
        limit = before + CONNECTIONS * MAX_BYTES
        await eventually_async(
            lambda: ground.memory_bytes() < limit,
            "the memory of idle connections is returned",
            within_s=20,
            details=lambda: f"{(ground.memory_bytes() - before) / CONNECTIONS:,.0f} bytes each",
        )
        for each in opened:
            each.close()

    ground.broker.start()
    try:
        asyncio.run(scenario())
    finally:
        ground.broker.kill()
