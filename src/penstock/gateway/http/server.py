"""HTTP server on the event loop of the process.

Uvicorn implements the protocol. Its `Server` is not used, because it would control the start, stop and signals
of the whole process. The number of connections is limited (`connection_table.py`), and connections are closed if
the client is idle, sends too slowly or does not read. So clients cannot use up the file descriptors that the log
needs, nor block a health check. This module is imported late, because loading it takes longer than starting a
broker.
"""

from __future__ import annotations

import asyncio
import ssl

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.connection_table import ConnectionTable
from penstock.gateway.http.plain_exchange import PlainApplication
from penstock.gateway.http.websocket_connection import WebSocketConnection
from penstock.net.network import limit_send_buffer

MAX_CONNECTIONS = 256
IDLE_SECONDS = 30.0
"""Time in seconds after which a connection without a request is closed, at the next sweep."""
HEAD_SECONDS = 10.0
"""Time in seconds within which the head of a request must arrive, checked at every sweep."""
BODY_SECONDS = 30.0
"""Time in seconds within which the body of a request must arrive, checked at every sweep."""
WRITE_SECONDS = 30.0
SEND_BUFFER_BYTES = 128 * 1024
"""Size of the socket's send buffer. With the system's default, a client that does not read would take megabytes."""
SWEEP_SECONDS = 2.0
STOP_SECONDS = 2.0
WEBSOCKET_MESSAGE_BYTES = 1024 * 1024


class HttpServer:
    def __init__(
        self,
        app: ASGIApp,
        table: ConnectionTable | None = None,
        write_seconds: float = WRITE_SECONDS,
        plain_app: PlainApplication | None = None,
    ) -> None:
        """Create a server. `plain_app` serves plain requests without ASGI (see `plain_exchange.py`)."""
        self._config = Config(
            app,
            lifespan="off",
            http="httptools",
            ws=WebSocketConnection,
            ws_max_size=WEBSOCKET_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        self._config.load()
        self.table = table or ConnectionTable(MAX_CONNECTIONS)
        self._write_seconds = write_seconds
        self._plain_app = plain_app
        self._state = ServerState()
        self._connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    async def start(
        self, host: str, port: int, *, shared: bool = False, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen, and return the bound port; raises OSError if it is in use. With `shared`, other processes may
        listen on the same port.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._make_protocol,
            host,
            port,
            reuse_port=shared or None,
            backlog=4096,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HEAD_SECONDS,
        )
        for each in self._server.sockets:
            limit_send_buffer(each.fileno(), SEND_BUFFER_BYTES)
        self._schedule_sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop accepting connections, wait some seconds for responses in progress, and close all connections."""
        if self._server is None:
            return
        self._server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(self._state.tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=STOP_SECONDS)
        if self._plain_app is not None:
            await self._plain_app.settle(STOP_SECONDS)
        for connection in list(self._connections):
            connection.transport.abort()
        self._server = None

    def _make_protocol(self) -> asyncio.Protocol:
        connection = HttpConnection(config=self._config, server_state=self._state, app_state={})
        connection.server_connections = self._connections
        connection.table = self.table
        connection.plain_app = self._plain_app
        return connection

    def _schedule_sweep(self) -> None:
        seconds = min(SWEEP_SECONDS, IDLE_SECONDS)
        self._sweep_timer = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in tuple(self._connections):
            self._look_after(connection, now)
        for each in tuple(self._state.connections):
            assert isinstance(each, HttpConnection | WebSocketConnection)
            self._look_after_writes(each, now)
        self._schedule_sweep()

    def _look_after(self, connection: HttpConnection, now: float) -> None:
        if connection.head_since is not None and now - connection.head_since > min(
            HEAD_SECONDS, IDLE_SECONDS
        ):
            connection.give_up(f"the head of the request was not complete within {HEAD_SECONDS:.0f} s")
        elif connection.body_since is not None and now - connection.body_since > BODY_SECONDS:
            connection.give_up(f"the body of the request was not complete within {BODY_SECONDS:.0f} s")
        elif connection.is_idle and now - connection.idle_since > IDLE_SECONDS:
            connection.transport.close()

    def _look_after_writes(self, connection: HttpConnection | WebSocketConnection, now: float) -> None:
        unsent = connection.transport.get_write_buffer_size()
        if unsent == 0 or unsent < connection.waiting_to_send:
            connection.stalled_since = None
        elif connection.stalled_since is None:
            connection.stalled_since = now
        elif now - connection.stalled_since > self._write_seconds:
            connection.transport.abort()
        connection.waiting_to_send = unsent
