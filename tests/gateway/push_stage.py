"""A gateway in the process of the test, in front of whole brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.clock import SystemClock
from penstock.config import Address, BrokerConfig
from penstock.gateway.backend import Backend
from penstock.gateway.context import ClusterAddress, GatewayContext
from penstock.gateway.gateway import Gateway
from penstock.gateway.health import BrokerState, Health
from penstock.gateway.http.service import HttpService
from penstock.gateway.push.service import PushService
from penstock.net.network import TcpNetwork
from penstock.observability.alarms import Alarms
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.records.building import NewRecord
from penstock.threads import ThreadPools
from support.whole_brokers import Brokers, run

QUICK = {
    "offsets_topic_num_partitions": "2",
    "group_consumer_heartbeat_interval_ms": "50",
    "group_consumer_session_timeout_ms": "10000",
}
WAIT_SECONDS = 20.0


class Events:
    """A client's view of a stream of server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id = ""
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any]:
        """Return the next message; AssertionError where the stream ends or reports a problem."""
        fields = await self.fields()
        assert "event" not in fields, fields
        self.last_id = fields["id"]
        return dict(fields["data"])

    async def fields(self) -> dict[str, Any]:
        """Return the fields of the next event of any kind."""
        async with asyncio.timeout(WAIT_SECONDS):
            fields = await self._next_fields()
        assert fields, "the stream has ended"
        return fields | {"data": json.loads(fields["data"])}

    async def values(self, count: int) -> list[str]:
        return [(await self.next())["value"] for _ in range(count)]

    async def _next_fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line and "data" in fields:
                return fields
            name, _, value = line.partition(": ")
            fields[name] = value
        return {}

    async def ended(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return not await self._next_fields()


class Stage:
    def __init__(self, brokers: Brokers, settings: dict[str, str], name: str = "test") -> None:
        self.lines: list[str] = []
        self.threads = ThreadPools()
        self.http = httpx.AsyncClient(timeout=WAIT_SECONDS)
        self.port = 0
        clock, metrics = SystemClock(), BrokerMetrics({}, max_topics=10)
        log = Logger(clock, self.lines.append, lambda now, level, text, fields: f"{level} {text} {fields}")
        addresses = [Address("localhost", broker.port) for broker in brokers.running.values()]
        way = ClusterAddress(TcpNetwork(), addresses)
        config = BrokerConfig(settings)
        alarms = Alarms(clock, log, metrics)
        self._context = GatewayContext(way, config, clock, self.threads, log, metrics, alarms, name)
        self._service = HttpService(self.threads, metrics, lambda: Health(BrokerState.SERVING))

    @property
    def gateway(self) -> Gateway:
        assert self._service._gateway is not None
        return self._service._gateway

    @property
    def push(self) -> PushService:
        return self.gateway._push

    @property
    def backend(self) -> Backend:
        return self.gateway._backend

    @property
    def connections(self) -> list[Any]:
        """Uvicorn's connections, of requests and of WebSockets."""
        assert self._service._server is not None
        return list(self._service._server._state.connections)

    async def start(self) -> None:
        self.port = await self._service.start("127.0.0.1", 0, self._context)
        self.http.base_url = httpx.URL(f"http://127.0.0.1:{self.port}")

    async def stop(self) -> None:
        await self.http.aclose()
        await self._service.stop()
        self.threads.close()
        assert not [line for line in self.lines if "Traceback" in line], self.lines

    async def send(self, topic: str, *values: str, partition: int = 0) -> None:
        records = [NewRecord(b"k", value.encode(), 1_700_000_000_000) for value in values]
        sends = [self.backend.records.produce(topic, partition, record) for record in records]
        await asyncio.gather(*sends)

    @asynccontextmanager
    async def events(self, path: str, last_id: str = "", **parameters: str | int) -> AsyncIterator[Events]:
        headers = {"last-event-id": last_id} if last_id else {}
        async with self.http.stream("GET", path, params=parameters, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            yield Events(response)


Scenario = Callable[[Stage, Brokers], Awaitable[None]]


def on_stage(
    directory: Path,
    scenario: Scenario,
    brokers: int = 1,
    of_brokers: Mapping[str, str] | None = None,
    **settings: str,
) -> None:
    async def play(running: Brokers) -> None:
        for number in range(1, brokers + 1):
            await running.start(number)
        stage = Stage(running, {name.replace("_", "."): value for name, value in settings.items()})
        await stage.start()
        try:
            await scenario(stage, running)
        finally:
            await stage.stop()

    run(directory, play, **(QUICK | dict(of_brokers or {})))
