"""A proxy that delays one request and delivers it after its client has closed the connection.

A network can delay a request in this way. The request arrives late, on the old connection, while the client
already works on a new connection.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

PATIENCE_S = 30.0
SETTLE_S = 0.01

Result = TypeVar("Result")


class LateRequests:
    """Holds the first request of an API after `hold`, and the bytes that follow it on the same connection."""

    def __init__(self) -> None:
        self.target_port = 0
        """Port that requests are sent to; set before the first connection."""
        self._api_key = -1
        self._frame = b""
        self._old: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_given_up = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="late requests", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def hold(self, api_key: int) -> None:
        self._api_key = api_key

    def deliver(self) -> bytes:
        """Response of the broker to the held request; empty if the broker closes the connection."""

        async def work() -> bytes:
            await self._is_given_up.wait()
            assert self._old is not None
            reader, writer = self._old
            writer.write(self._frame)
            answer = await reader.read(1 << 16)
            writer.close()
            return answer

        return self._run(work())

    def close(self) -> None:
        async def work() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(SETTLE_S)  # closed transports close their sockets

        self._run(work())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers += (writer, far_writer)
        answers = asyncio.ensure_future(_pump(far_reader, writer))
        try:
            is_old = await self._requests(reader, far_writer)
        finally:
            answers.cancel()
            writer.close()
        if is_old:
            await asyncio.gather(answers, return_exceptions=True)
            self._old = far_reader, far_writer
            self._is_given_up.set()
        else:
            far_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter) -> bool:
        """Whether a request was held, once its client has closed the connection."""
        is_old = False
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(struct.unpack(">i", size)[0])
                (api_key,) = struct.unpack_from(">h", frame, 4)
                if api_key == self._api_key:
                    self._api_key, self._frame, is_old = -1, frame, True
                elif not is_old:
                    far_writer.write(frame)
        return is_old

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()
