"""Metrics of all workers of a gateway: the worker that gets the request merges them.

Each worker serves its own metrics on a socket in a directory that all workers know. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.threads import Threads

ANSWER_SECONDS = 2.0
"""Timeout of a worker's metrics in seconds; a slower worker is left out."""


class Siblings:
    def __init__(self, socket: Path, own: Callable[[], Awaitable[bytes]], threads: Threads) -> None:
        """`socket` is the path where this worker serves its metrics; `own` returns them."""
        self._socket = socket
        self._own = own
        self._threads = threads
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)  # left by the worker that this one replaces
        self._server = await asyncio.start_unix_server(self._show, self._socket)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def metrics(self) -> bytes:
        from penstock.observability.exposition import merge

        sockets = sorted(self._socket.parent.iterdir())
        answers = await asyncio.gather(*map(self._ask, sockets))
        texts = {socket.name: text for socket, text in zip(sockets, answers, strict=True)}
        return await self._threads.run("read", lambda: merge(texts))

    async def _ask(self, socket: Path) -> bytes:
        """Return a worker's metrics; empty if it has ended and is not replaced yet."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(socket)
                try:
                    return await reader.read()
                finally:
                    writer.close()
        except OSError:
            return b""

    async def _show(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await self._own())
            await writer.drain()
        except OSError:
            pass  # the other worker closed the connection
        finally:
            writer.close()
