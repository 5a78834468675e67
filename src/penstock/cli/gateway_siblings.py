"""The workers of one gateway, as their metrics show them: whichever is asked answers for all.

Each worker shows its own on a socket in a directory that all of them know. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.threads import Threads

ANSWER_SECONDS = 2.0
"""A worker that takes longer is left out."""


class Siblings:
    def __init__(self, socket: Path, own: Callable[[], Awaitable[bytes]], threads: Threads) -> None:
        """`socket` is where this worker shows its metrics, which `own` tells."""
        self._socket = socket
        self._own = own
        self._threads = threads
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)  # of the one whose place this worker has taken
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
        """Nothing from one that has died and was not replaced yet."""
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
            pass  # whoever asked has gone
        finally:
            writer.close()
