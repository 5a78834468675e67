"""HTTP service of a broker or of a stand-alone gateway, from start to stop.

The HTTP libraries are imported in a thread pool, after the Kafka listener has been started, so that they delay no
client. For this reason a process imports only this module, and this module imports the others in `start`. Metrics are
collected on the event loop, in short steps, and formatted in a thread pool.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.config import (
    GATEWAY_CLIENT_MAX_CONNECTIONS,
    GATEWAY_MAX_CONNECTIONS,
    GATEWAY_TRUSTED_PROXIES,
    GATEWAY_WRITE_TIMEOUT_MS,
)
from penstock.gateway.health import Health
from penstock.internal_client.slices import in_slices
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.gateway.context import GatewayContext
    from penstock.gateway.gateway import Gateway
    from penstock.gateway.http.server import HttpServer


class HttpService:
    def __init__(self, threads: Threads, metrics: BrokerMetrics, health: Callable[[], Health]) -> None:
        self._threads = threads
        self._metrics = metrics
        self.shown_metrics: Callable[[], Awaitable[bytes]] = self.own_metrics
        """Returns the content of `/metrics`; may be replaced before the start."""
        self.shown_health = health
        """Returns the content of `/health`; may be replaced before the start."""
        self._server: HttpServer | None = None
        self._gateway: Gateway | None = None

    async def start(
        self,
        host: str,
        port: int,
        context: GatewayContext | None = None,
        *,
        shared: bool = False,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> int:
        """Serve HTTP, with a gateway if a context is given, and return the bound port.

        Raises OSError if the port is in use. With `shared`, other processes may listen on the same port. `tls` is
        called for each connection and returns its context, so that certificates can change.
        """
        await self._threads.run("background", _load)
        self._server = self._make_server(context)
        return await self._server.start(
            host, port, shared=shared, tls=None if tls is None else _swapping(tls)
        )

    async def close_gateway(self) -> None:
        """End long polls, and let the other requests finish. Called before the broker, which serves them, stops."""
        if self._gateway is not None:
            self._gateway.drain()
            await self._gateway.settle()

    async def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.drain()
        if self._server is not None:
            await self._server.stop()
        if self._gateway is not None:
            await self._gateway.close()

    def _make_server(self, context: GatewayContext | None) -> HttpServer:
        from penstock.gateway.gateway import Gateway
        from penstock.gateway.http.connection_table import ConnectionTable
        from penstock.gateway.http.health_app import make_app
        from penstock.gateway.http.server import HttpServer

        if context is None:
            return HttpServer(make_app(self.shown_health, self.shown_metrics))
        self._gateway = Gateway(context, self.shown_health, self.shown_metrics)
        config = context.config
        trusted = config[GATEWAY_TRUSTED_PROXIES]
        table = ConnectionTable(
            config[GATEWAY_MAX_CONNECTIONS], config[GATEWAY_CLIENT_MAX_CONNECTIONS], trusted or ()
        )
        application, write_seconds = self._gateway.application, config[GATEWAY_WRITE_TIMEOUT_MS] / 1000
        server = HttpServer(application, table, write_seconds, plain_app=application)
        self._metrics.add_gauge(
            "penstock_http_connections", "Open HTTP connections.", lambda: server.connections
        )
        self._metrics.add_counter(
            "penstock_http_connections_evicted",
            "Idle or waiting HTTP connections closed to make room for others.",
            lambda: table.evictions,
        )
        self._metrics.add_counter(
            "penstock_http_connections_refused",
            "HTTP connections over the limit, served for /health and /metrics alone.",
            lambda: table.refusals,
        )
        return server

    async def own_metrics(self) -> bytes:
        """Return the metrics of this process in Prometheus' text format."""
        from penstock.observability.exposition import render, snapshot_steps

        snapshot = await in_slices(snapshot_steps(self._metrics))
        return await self._threads.run("read", lambda: render(snapshot))


def _swapping(current: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Create a context that gives each new connection the context, and so the certificate, that is current then."""
    context = current()

    def swap(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = current()

    first = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    first.minimum_version, first.verify_mode = context.minimum_version, context.verify_mode
    first.options |= context.options
    # OpenSSL uses the TLS 1.2 cipher suites of this first context, not those of the context that replaces it.
    suites = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    first.set_ciphers(":".join(suites))
    first.sni_callback = swap
    return first


def _load() -> None:
    import penstock.gateway.gateway
    import penstock.gateway.http.health_app
    import penstock.gateway.http.server  # noqa: F401
