"""Receivers of webhooks in the process of a test: honest, slow and hostile ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Respond = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ReceiverServer:
    port: int = 0
    connections: int = 0
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


def answer(status: int, *lines: str, body: bytes = b"") -> Respond:
    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *lines, "", ""]
        writer.write("\r\n".join(head).encode() + body)

    return respond


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, body)


@asynccontextmanager
async def receiving(respond: Respond) -> AsyncIterator[ReceiverServer]:
    """A receiver that answers each request with `respond`."""
    server = ReceiverServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with suppress(ConnectionError, asyncio.CancelledError):
            while (received := await read_request(reader)) is not None:
                server.received.append(received)
                await respond(received, writer)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
