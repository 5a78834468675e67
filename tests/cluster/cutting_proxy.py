"""TCP proxy in front of ZooKeeper that cuts connections on request, also between a request and its response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum, auto

GET_DATA, SYNC, PING, MULTI = 4, 9, 11, 14
"""ZooKeeper's request codes."""


class Cut(Enum):
    BEFORE_FORWARDING = auto()
    AFTER_FORWARDING = auto()


class CuttingProxy:
    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.next_multi: Cut | None = None
        """Fault for the connection that sends the next multi."""
        self.requests: list[int] = []
        """Codes of the received requests, except pings."""
        self._target_port = target_port
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """Close all connections, and every new one, until `restore`."""
        self._is_cut = True
        self.drop()

    def restore(self) -> None:
        self._is_cut = False

    def drop(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        answers = asyncio.ensure_future(_copy(server_reader, writer))
        server_writer.write(await _read(reader))  # the session handshake has no code
        while data := await _read(reader):
            codes = list(_codes(data))
            self.requests += [code for code in codes if code != PING]
            if self.next_multi is not None and MULTI in codes:
                action, self.next_multi = self.next_multi, None
                answers.cancel()
                await asyncio.wait({answers})
                if action is Cut.AFTER_FORWARDING:
                    server_writer.write(data)
                    await _read(server_reader)  # the request has been carried out when its response is here
                self.drop()
                return
            server_writer.write(data)
        server_writer.close()
        await answers


def _codes(data: bytes) -> Iterator[int]:
    """Length, number and code of each request. kazoo writes whole requests that are small enough to arrive
    whole.
    """
    while data:
        yield int.from_bytes(data[8:12], "big")
        data = data[4 + int.from_bytes(data[:4], "big") :]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await _read(reader):
        writer.write(data)
    writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except ConnectionError:
        return b""
