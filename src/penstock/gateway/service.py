"""The broker's HTTP side, from its start to its stop.

The libraries are loaded in a pool after the Kafka listener answers, so they delay nobody; metrics are
collected on the loop and turned into text in a pool. The broker imports this; what lies behind it is imported
here, late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.gateway.health import Health
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.gateway.server import HttpServer


class HttpService:
    def __init__(self, threads: Threads, metrics: BrokerMetrics, health: Callable[[], Health]) -> None:
        self._threads = threads
        self._metrics = metrics
        self._health = health
        self._server: HttpServer | None = None

    async def start(self, host: str, port: int) -> int:
        """Serve; returns the port that was bound. OSError when it cannot be had."""
        self._server = await self._threads.run("background", self._make_server)
        return await self._server.start(host, port)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    def _make_server(self) -> HttpServer:
        from penstock.gateway.app import make_app
        from penstock.gateway.server import HttpServer

        return HttpServer(make_app(self._health, self._render_metrics))

    async def _render_metrics(self) -> bytes:
        from penstock.observability.exposition import render, take_snapshot

        snapshot = take_snapshot(self._metrics)
        return await self._threads.run("read", lambda: render(snapshot))
