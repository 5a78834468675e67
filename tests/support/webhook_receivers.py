"""Receivers of webhooks in the process of a test: honest, slow and hostile ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread

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
    status: int = 200
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


def answer(status: int, *lines: str, body: bytes = b"") -> Respond:
    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *lines, "", ""]
        writer.write("\r\n".join(head).encode() + body)

    return respond


async def hang(received: Received, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.sleep(3_600)


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
async def receiving(respond: Respond, tls: SSLContext | None = None) -> AsyncIterator[ReceiverServer]:
    """A receiver that answers each request with `respond`, over TLS if settings of it are given."""
    server = ReceiverServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with suppress(ConnectionError, asyncio.CancelledError):
            while (received := await read_request(reader)) is not None:
                server.received.append(received)
                await respond(received, writer)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@contextmanager
def thread_receiver(status: int = 200) -> Iterator[ReceiverServer]:
    """A receiver in a thread, for tests of commands and processes."""
    server = ReceiverServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            body = self.rfile.read(size)
            if len(body) < size:  # the sender was killed: no receiver takes a part for a message
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.received.append(Received(self.path, headers, body))
            self.send_response(server.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server.status = status
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.port = listening.server_address[1]
    thread = Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
