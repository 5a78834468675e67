"""One HTTP connection: uvicorn's, with stricter checks for untrusted clients.

llhttp refuses ambiguous framing (RFC 9112: contradicting lengths and encodings, bare line feeds, folded
headers). This class adds bounds on the request head, requires one valid `Host`, and responds to refused
requests. A request is cancelled when its client disconnects. The server knows the connection from its
beginning to its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from penstock.gateway.http.connection_table import ConnectionTable, RefusedConnection
from penstock.gateway.http.websocket_connection import WebSocketConnection

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
MAX_TARGET_BYTES = 8 * 1024
MAX_FRAMING_BYTES = 64 * 1024
MAX_PIPELINED = 16
"""Requests that a client may send before the first of them has a response."""

_KNOWN_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


SYSTEM_PATHS = (b"/health", b"/metrics")
ON_LASTING = "penstock.on_lasting"
"""Key in the scope of a request: a function to call when the response may take long because it waits for
messages.
"""
_RETRIABLE = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
SEND_WHOLE = "penstock.send_whole"
"""Key in the scope of a request: a `SendWhole`."""
SendWhole = Callable[[int, Sequence[tuple[bytes, bytes]], bytes], Awaitable[None]]
"""A function that sends status, headers and body of a response at once."""


class _Refused(Exception):
    """The request gets a response with this status, and the connection is closed."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class HttpConnection(HttpToolsProtocol):
    server_connections: dict[HttpConnection, None]
    """All connections of the server, oldest first."""
    table: ConnectionTable
    no_place: RefusedConnection | None = None
    """Set on a connection beyond the limits: it gets one response, for `SYSTEM_PATHS` alone, and is closed."""
    head_since: float | None = None
    """Time at which the incomplete request head began."""
    body_since: float | None = None
    """Time at which the incomplete body began."""
    waiting_to_send: int = 0
    """Bytes that the peer had not received at the last sweep."""
    stalled_since: float | None = None
    idle_since: float = 0.0

    _head_bytes = 0
    _is_in_head = True
    _refusal: _Refused | None = None
    _running: asyncio.Task[None] | None = None
    _running_cycle: RequestResponseCycle | None = None
    _is_lasting = False
    """Whether the request in progress waits for messages or streams them."""
    _framing_bytes = 0
    """Bytes of the body that were chunk framing and not content; each byte of content allows sixteen of them."""

    # --- lifecycle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self.server_connections[self] = None
        self.no_place = self.table.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_connections.pop(self, None)
        self.table.remove(self)
        self.pipeline.clear()
        if self._running is not None and self._running_cycle is not None:
            self._running_cycle.disconnected = True
            self._running.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled_since = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self._running is None

    @property
    def is_waiting(self) -> bool:
        """Whether the request waits for messages, for its body, or for its client to read the response."""
        return self._is_lasting or self.body_since is not None or self.stalled_since is not None

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def evict(self) -> None:
        """Close the connection to make room for another; a request without a response gets 503."""
        cycle = self._running_cycle
        if self._running is None or cycle is None or cycle.response_started:
            self.transport.abort()
            return
        cycle.disconnected = True
        self._running.cancel()
        self._refuse(
            HTTPStatus.SERVICE_UNAVAILABLE, "another client needs this connection; connect again later"
        )

    def _refuse(self, status: int, detail: str) -> None:
        """Respond with a problem and close."""
        if self.transport.is_closing():
            return
        title = HTTPStatus(status).phrase
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        body = json.dumps(problem | {"retriable": status in _RETRIABLE}).encode()
        later = "retry-after: 1\r\n" if status in _LATER else ""
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n{later}"
            f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    # --- bytes

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return
        if self._is_in_head:
            if self.head_since is None:
                self.head_since = self.loop.time()
            self._head_bytes += len(data)
        else:
            self._framing_bytes += len(data)
        try:
            self.parser.feed_data(data)
            self._check_progress()
        except httptools.HttpParserUpgrade:
            self._on_upgrade()
        except (httptools.HttpParserError, _Refused) as error:
            self._refusal = self._refusal or _explain(error, data)
            self._end_with(self._refusal)

    def _check_progress(self) -> None:
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            raise _Refused(431, f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")
        if self._framing_bytes > MAX_FRAMING_BYTES:
            raise _Refused(400, "the body has more framing than content")

    def give_up(self, detail: str) -> None:
        """Respond with 408 and close, because a head or body that has begun is overdue."""
        self.head_since = self.body_since = None
        self._refusal = self._refusal or _Refused(HTTPStatus.REQUEST_TIMEOUT, detail)
        self._end_with(self._refusal)

    def _end_with(self, refusal: _Refused) -> None:
        if self._running is None:
            self._refuse(refusal.status, str(refusal))
        elif self._running_cycle is not self.cycle or self.cycle.response_started or not self.cycle.more_body:
            # An earlier request has its response first, and nothing may be written into a response in
            # progress.
            self._running.add_done_callback(lambda _: self.transport.close())
        else:
            self.cycle.disconnected = True
            self._running.cancel()
            self._refuse(refusal.status, str(refusal))

    def _should_upgrade(self) -> bool:
        # A request with any other method would get no response.
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def _on_upgrade(self) -> None:
        if self._should_upgrade():
            self.server_connections.pop(self, None)
            self.handle_websocket_upgrade()
            socket = self.transport.get_protocol()
            assert isinstance(socket, WebSocketConnection)
            socket.table = self.table
            self.table.replace(self, socket)
        else:
            # The parser takes what follows for another protocol: this request is served as one without a
            # body.
            self.body_since = None
            self.cycle.keep_alive = False
            self.cycle.more_body = False
            self.cycle.message_event.set()

    # --- the parser's events

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._target_bytes = 0
        self._hosts: list[bytes] = []
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > MAX_TARGET_BYTES:
            self._refuse_later(414, f"the target of the request is longer than {MAX_TARGET_BYTES} bytes")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._target_bytes += len(name) + len(value)
        if len(self.headers) > MAX_HEADERS or self._target_bytes > MAX_HEAD_BYTES:
            self._refuse_later(
                431, f"a request may have {MAX_HEADERS} headers and {MAX_HEAD_BYTES} bytes of them at most"
            )
        lowered = name.lower()
        if lowered == b"host":
            self._hosts.append(value.strip())
        elif lowered == b"expect" and value.strip().lower() != b"100-continue":
            self._refuse_later(417, "the only supported expectation is 100-continue")
        elif lowered == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._refuse_later(400, "the only supported transfer encoding is chunked")

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes, self.head_since = False, 0, None
        self._framing_bytes = 0
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse_later(505, "the only supported version is HTTP/1.1")
        if method not in _KNOWN_METHODS:
            self._refuse_later(
                405 if method in (b"TRACE", b"CONNECT") else 501, "this method is not supported"
            )
        if len(self._hosts) > 1 or (not self._hosts and version == "1.1"):
            self._refuse_later(400, "a request needs exactly one Host header")
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse_later(429, f"more than {MAX_PIPELINED} requests before a response")
        self._check_target()
        if self.no_place is not None and self.url.partition(b"?")[0] not in SYSTEM_PATHS:
            self._refuse_later(self.no_place.status, self.no_place.detail)
        self.body_since = self.loop.time()
        super().on_headers_complete()
        if self.no_place is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = max(0, self._framing_bytes - 17 * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.body_since = None
        # The next head begins with the next byte.
        self._is_in_head = True

    def _check_target(self) -> None:
        """Check that an absolute target names the host of the request, and return the target without it."""
        if self.url.startswith(b"/"):
            return
        if self.url == b"*" and self.parser.get_method() == b"OPTIONS":
            self.url = b"/"
            return
        parts = urlsplit(self.url)
        host = self._hosts[0] if self._hosts else b""
        if (
            parts.scheme not in (b"http", b"https")
            or parts.netloc.lower() != host.lower()
            or b"@" in parts.netloc
        ):
            self._refuse_later(400, "the target of the request is not a path, nor a URL of its host")
        self.url = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")

    def _refuse_later(self, status: int, detail: str) -> None:
        """Refuse the request from within the parser, which passes on no exception but its own."""
        self._refusal = self._refusal or _Refused(status, detail)
        raise self._refusal

    def on_response_complete(self) -> None:
        """Do the same as uvicorn, without a timer for each response: the server's sweep closes idle
        connections.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    # --- the application

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope[SEND_WHOLE] = partial(_send_whole, cycle)  # type: ignore[literal-required]
        cycle.scope[ON_LASTING] = self._on_lasting  # type: ignore[literal-required]
        task = self.loop.create_task(cycle.run_asgi(app))
        self._running, self._running_cycle = task, cycle
        self._is_lasting = False
        self.tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_lasting(self) -> None:
        self._is_lasting = True

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self._running is task:
            self._running = self._running_cycle = None
            self._is_lasting = False
            self.idle_since = self.loop.time()


async def _send_whole(
    cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    """Send both parts of a response as uvicorn's `send`, with one write and one check."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    head = STATUS_LINE[status] + b"".join([b"%s: %s\r\n" % header for header in headers])
    if head.count(b"\n") != len(headers) + 1 or head.count(b"\r") != len(headers) + 1 or b"\0" in head:
        raise ValueError("a response header contains a line break")
    if not cycle.keep_alive:
        head += b"connection: close\r\n"
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"%s\r\n%s" % (head, body))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def _explain(error: Exception, data: bytes) -> _Refused:
    if isinstance(error, _Refused):
        return error
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        is_method = data.split(b" ", 1)[0].isalpha()
        return _Refused(501 if is_method else 400, "this is not a request of HTTP/1.1")
    return _Refused(400, f"this is not a request of HTTP/1.1: {_named(error)}")


def _named(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return text[:100] if text.isprintable() else "it cannot be read"
