"""Serves an HTTP application in the broker's own loop.

Uvicorn speaks HTTP; starting, stopping and signals stay with the broker, so its `Server`, which takes over
the process, is not used. Connections are few and go when they stand idle, so that strangers cannot take the
file descriptors the log needs, nor keep a health check out. Imported late: loading it takes longer than
starting a broker.
"""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MAX_CONNECTIONS = 256
IDLE_SECONDS = 30.0
"""Without a whole request for this long, or twice as long, a connection is closed."""
KEEP_ALIVE_SECONDS = 60
STOP_SECONDS = 2.0


class _Connection(H11Protocol):
    """One of uvicorn's, known to its server from its beginning to its end."""

    server_connections: dict[_Connection, None]
    """Of the server, oldest first."""
    seen_cycle: object = ()
    """The request that was its last when idle connections were looked for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connections = self.server_connections
        connections[self] = None
        if len(connections) > MAX_CONNECTIONS:
            # The newest may be a health check: an old one that asks for nothing makes room for it.
            next((each for each in connections if each.is_idle), self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_connections.pop(self, None)
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete


class HttpServer:
    def __init__(self, app: Starlette) -> None:
        self._config = Config(
            app,
            lifespan="off",
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port that was bound. OSError when it cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_protocol, host, port)
        self._schedule_sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Accept no more, let answers under way finish for a moment, and close what is left."""
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
        self._server = None

    def _make_protocol(self) -> asyncio.Protocol:
        connection = _Connection(config=self._config, server_state=self._state, app_state={})
        connection.server_connections = self._connections
        return connection

    def _schedule_sweep(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        for connection in tuple(self._connections):
            if connection.is_idle and connection.cycle is connection.seen_cycle:
                connection.transport.abort()
            connection.seen_cycle = connection.cycle
        self._schedule_sweep()
