"""Exchange of reports (metrics, health) between processes that share an HTTP port.

Each process serves its own reports on a socket in a directory that all processes know. A client sends the name of a
report and receives its bytes. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

RESPONSE_SECONDS = 2.0
"""Timeout of a report in seconds. The report of a slower process is empty."""

Sources = Mapping[str, Callable[[], Awaitable[bytes]]]


class ReportSockets:
    def __init__(self, socket: Path) -> None:
        """`socket` is the path where this process serves its reports."""
        self._socket = socket
        self._sources: Sources = {}
        self._server: asyncio.Server | None = None

    async def start(self, sources: Sources) -> None:
        """Serve the reports in `sources` by name."""
        self._sources = sources
        self._socket.unlink(missing_ok=True)  # socket left behind by the process that this one replaces
        self._server = await asyncio.start_unix_server(self._show, self._socket)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def read(self, report: str) -> dict[str, bytes]:
        """Return a report of all processes, by the names of their sockets. It is empty if a process does not
        respond.
        """
        sockets = sorted(self._socket.parent.iterdir())
        answers = await asyncio.gather(*(self._ask(socket, report) for socket in sockets))
        return {socket.name: answer for socket, answer in zip(sockets, answers, strict=True)}

    async def _ask(self, socket: Path, report: str) -> bytes:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                reader, writer = await asyncio.open_unix_connection(socket)
                try:
                    writer.write(f"{report}\n".encode())
                    return await reader.read()
                finally:
                    writer.close()
        except OSError:
            return b""

    async def _show(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                source = self._sources.get((await reader.readline()).decode().strip())
                if source is not None:
                    writer.write(await source())
                    await writer.drain()
        except OSError:
            pass  # the other process closed the connection
        finally:
            writer.close()
