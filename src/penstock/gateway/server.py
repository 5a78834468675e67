"""Serves an HTTP application in the broker's own loop.

Uvicorn speaks HTTP; starting, stopping and signals stay with the broker, so its `Server`, which takes over
the process, is not used. Imported late: loading it takes longer than starting a broker.
"""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from uvicorn import Config
from uvicorn.server import ServerState

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 30
STOP_SECONDS = 2.0


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
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port that was bound. OSError when it cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_protocol, host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Accept no more, let answers under way finish for a moment, and close what is left."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(self._state.tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        self._server = None

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}
        )
        return protocol
