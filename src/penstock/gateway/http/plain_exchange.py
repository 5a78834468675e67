"""A plain request, passed from the parser to the application without ASGI.

A request is plain if its endpoint is declared plain, its target has no unusual characters, it has no `Expect`,
no upgrade, no chunked body and a small Content-Length, and all earlier requests of the connection have a
response. All other requests go through ASGI (`exchange.py`). The object replaces uvicorn's cycle, and has the
attributes of it that the connection uses. Loop thread only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import ClassVar, Protocol

from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from penstock.gateway.http.exchange import Begin, ClientGone, HttpExchange, RawHeaders, certificate_of

MAX_PLAIN_BODY_BYTES = 32 * 1024
PLAIN_TARGET = re.compile(rb"(/[A-Za-z0-9._~/-]*)(?:\?([A-Za-z0-9._~=&%+:,;@!$'()*/?-]*))?")
"""Unambiguous request targets. Group 1 is the path, group 2 the query."""


class PlainApplication(Protocol):
    def is_plain(self, method: str, path: bytes) -> bool:
        """True if the endpoint for this method and path is declared plain."""
        ...

    async def serve(self, exchange: HttpExchange) -> None: ...

    def begin(
        self, exchange: PlainHttpExchange, on_end: Callable[[PlainHttpExchange], None]
    ) -> RunningRequest | None:
        """Begin to serve a request whose body is complete, without a task; None if `serve` has to serve it."""
        ...

    async def settle(self, seconds: float) -> None:
        """Wait until no request is in progress, but at most this many seconds."""
        ...


class RunningRequest(Protocol):
    """A request in progress: its task, or a `PlainRequest`."""

    def cancel(self) -> object: ...


class _Event(Protocol):
    def set(self) -> None: ...


class Cycle(Protocol):
    """State of a request on its connection: uvicorn's cycle, or a `PlainHttpExchange`."""

    flow: FlowControl
    transport: asyncio.Transport
    disconnected: bool
    keep_alive: bool
    response_started: bool
    response_complete: bool
    on_response: Callable[[], None]

    @property
    def message_event(self) -> _Event: ...


class _NoEvent:
    """Replacement for the event of uvicorn's cycle. Plain requests never wait for it."""

    def set(self) -> None:
        pass


class PlainHttpExchange:
    message_event: ClassVar[_NoEvent] = _NoEvent()

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes,
        headers: RawHeaders,
        address: str,
        *,
        flow: FlowControl,
        transport: asyncio.Transport,
        keep_alive: bool,
        on_response: Callable[[], None],
        on_lasting: Callable[[], None],
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query_string = query_string
        self.headers = headers
        self.address = address
        self.flow = flow
        self.transport = transport
        self.keep_alive = keep_alive
        self.on_response = on_response
        self.on_lasting = on_lasting
        self.disconnected = False
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.body = b""
        """Bytes of the body that were received and not read yet."""
        self._arrived: asyncio.Future[None] | None = None

    def certificate(self) -> bytes | None:
        return certificate_of(self.transport)

    def on_body(self, body: bytes) -> None:
        self.body += body
        self._wake()

    def on_message_complete(self) -> None:
        self.more_body = False
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def read_piece(self) -> tuple[bytes, bool]:
        if not self.body and self.more_body:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        if self.disconnected:
            raise ClientGone
        piece, self.body = self.body, b""
        return piece, self.more_body

    async def respond(self, response: Response, begin: Begin) -> None:
        headers = begin(response.status_code, response.raw_headers)
        await write_response(self, response.status_code, headers, bytes(response.body))

    def respond_now(self, response: Response, begin: Begin) -> None:
        """Send the response without waiting. The transport buffers the bytes that the client does not take."""
        headers = begin(response.status_code, response.raw_headers)
        _write(self, response.status_code, headers, bytes(response.body))


async def write_response(cycle: Cycle, status: int, headers: RawHeaders, body: bytes) -> None:
    """Send head and body of a response with one write, in place of two calls of uvicorn's `send`."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    _write(cycle, status, headers, body)


def _write(cycle: Cycle, status: int, headers: RawHeaders, body: bytes) -> None:
    if cycle.disconnected:
        return
    head = STATUS_LINE[status] + b"".join([b"%s: %s\r\n" % header for header in headers])
    if head.count(b"\n") != len(headers) + 1 or head.count(b"\r") != len(headers) + 1 or b"\0" in head:
        raise ValueError("a response header contains a line break")
    if (b"connection", b"close") in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        head += b"connection: close\r\n"
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"%s\r\n%s" % (head, body))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
