"""TCP links that a test cuts, holds and slows down: a proxy before each listener, in an event loop of its own
thread.

A link is identified by both ends, so that two brokers can be partitioned while clients reach both. Held bytes
are kept and arrive when the link is healed, as with TCP; cut connections are reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

CHUNK_BYTES = 1 << 16
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
PATIENCE_S = 30.0
SETTLE_S = 0.01

Result = TypeVar("Result")
WhoConnects = Callable[[int], Hashable]
"""Function that finds the owner of a local port; called once per connection."""


@dataclass(slots=True, eq=False)
class Link:
    """State of the link from one end to another; `Links` changes it."""

    is_cut: bool = False
    delay_s: float = 0.0
    """Delay of each piece of up to 64 KiB, in seconds; a delay also bounds the rate."""
    requests_pass: asyncio.Event = field(default_factory=asyncio.Event)
    answers_pass: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def heal(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.requests_pass.set()
        self.answers_pass.set()


class Links:
    """All links of a test. A method returns when the new state holds."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._links: dict[tuple[Hashable, Hashable], Link] = {}
        self._servers: list[asyncio.Server] = []

    def listen(self, target: Hashable, target_port: int, who_connects: WhoConnects) -> int:
        """Open a port that forwards to the target's port."""

        async def serve() -> int:
            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                port = writer.get_extra_info("peername")[1]
                # In a thread pool, because the lookup is slow and other links must not wait for it.
                try:
                    source = await self._loop.run_in_executor(None, who_connects, port)
                except asyncio.CancelledError:
                    _reset(writer)
                    raise
                await _connect(self._link(source, target), target_port, reader, writer)

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            self._servers.append(server)
            port: int = server.sockets[0].getsockname()[1]
            return port

        return self._run(serve())

    def cut(self, source: Hashable, target: Hashable) -> None:
        """Reset all connections, and new connections as they arrive."""

        async def change() -> None:
            link = self._link(source, target)
            link.is_cut = True
            for writer in list(link.writers):
                _reset(writer)

        self._run(change())

    def hold(
        self, source: Hashable, target: Hashable, *, requests: bool = True, answers: bool = True
    ) -> None:
        """Stop delivery, in one direction or both, without closing connections."""

        async def change() -> None:
            link = self._link(source, target)
            if requests:
                link.requests_pass.clear()
            if answers:
                link.answers_pass.clear()

        self._run(change())

    def slow(self, source: Hashable, target: Hashable, delay_s: float) -> None:
        async def change() -> None:
            self._link(source, target).delay_s = delay_s

        self._run(change())

    def heal(self) -> None:
        """Deliver everything again."""

        async def change() -> None:
            for link in self._links.values():
                link.heal()

        self._run(change())

    def close(self) -> None:
        async def change() -> None:
            for server in self._servers:
                server.close()
            await asyncio.sleep(SETTLE_S)  # a connection that was just accepted gets its transport
            for link in self._links.values():
                for writer in list(link.writers):
                    _reset(writer)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(SETTLE_S)  # closed transports close their sockets
            await self._loop.shutdown_default_executor()

        self._run(change())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _link(self, source: Hashable, target: Hashable) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
            link.heal()
        return link

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


async def _connect(
    link: Link, target_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if link.is_cut:
        _reset(writer)
        return
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target_port)
    except OSError:
        _reset(writer)
        return
    link.writers |= {writer, far_writer}
    try:
        await asyncio.gather(
            _pump(link, link.requests_pass, reader, far_writer),
            _pump(link, link.answers_pass, far_reader, writer),
        )
    finally:
        link.writers -= {writer, far_writer}
        writer.close()
        far_writer.close()


async def _pump(
    link: Link, passing: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            if link.delay_s:
                await asyncio.sleep(link.delay_s)
            await passing.wait()
            writer.write(data)
            await writer.drain()
        await passing.wait()
        writer.close()
    except ConnectionError:
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.transport.abort()
