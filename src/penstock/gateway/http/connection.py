"""One HTTP connection: uvicorn's class, extended by stricter checks for untrusted clients.

llhttp refuses ambiguous framing (RFC 9112: contradicting lengths and encodings, bare line feeds, folded
headers). This class adds bounds on the request head, requires one valid `Host`, and responds to refused
requests. A request is cancelled when its client disconnects. The connection is in `server_connections` from
its beginning to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.gateway.http.connection_table import ConnectionTable, RefusedConnection
from penstock.gateway.http.exchange import ON_LASTING, SEND_WHOLE, TRANSPORT
from penstock.gateway.http.plain_exchange import (
    MAX_PLAIN_BODY_BYTES,
    PLAIN_TARGET,
    PlainApplication,
    PlainHttpExchange,
    RunningRequest,
    write_response,
)
from penstock.gateway.http.refusals import RefusedRequest, refusal_of, refusal_response
from penstock.gateway.http.request_target import path_of
from penstock.gateway.http.websocket_connection import WebSocketConnection

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
MAX_TARGET_BYTES = 8 * 1024
MAX_FRAMING_BYTES = 64 * 1024
MAX_PIPELINED = 16
"""Maximum number of requests that a client may send before the first of them has a response."""

_KNOWN_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
SYSTEM_PATHS = (b"/health", b"/metrics")
_CHECKED_HEADERS = frozenset({b"host", b"expect", b"transfer-encoding", b"content-length"})


class HttpConnection(HttpToolsProtocol):
    server_connections: dict[HttpConnection, None]
    """All connections of the server, oldest first."""
    table: ConnectionTable
    plain_app: PlainApplication | None = None
    """The application for plain requests; if None, all requests go through ASGI."""
    no_place: RefusedConnection | None = None
    """Reason of refusal if the connection exceeds the limits: it may request only `SYSTEM_PATHS`, once."""
    head_since: float | None = None
    """Time at which the first byte of the incomplete request head came, in seconds of the loop's clock."""
    body_since: float | None = None
    """Time at which the incomplete request body began, in seconds of the loop's clock."""
    waiting_to_send: int = 0
    """Number of bytes in the send buffer at the last sweep of the server."""
    stalled_since: float | None = None
    idle_since: float = 0.0

    _head_bytes = 0
    _is_in_head = True
    _refusal: RefusedRequest | None = None
    _running: RunningRequest | None = None
    _unstarted: PlainHttpExchange | None = None
    """Plain request that starts when all bytes received so far are parsed."""
    _closes_after_response = False
    _running_cycle: RequestResponseCycle | PlainHttpExchange | None = None
    _is_lasting = False
    """True if the request in progress is a long poll or a stream."""
    _framing_bytes = 0
    """Number of body bytes that were chunk framing, less 16 for each byte of content; at least 0."""

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
        """True if no request is in progress."""
        return self._running is None

    @property
    def is_waiting(self) -> bool:
        """True if the request waits for messages, for its body, or for the client to read the response."""
        return self._is_lasting or self.body_since is not None or self.stalled_since is not None

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def evict(self) -> None:
        """Close the connection to make room for another. A request whose response has not begun gets 503."""
        cycle = self._running_cycle
        if self._running is None or cycle is None or cycle.response_started:
            self.transport.abort()
            return
        cycle.disconnected = True
        self._running.cancel()
        self._refuse(
            HTTPStatus.SERVICE_UNAVAILABLE, "closed because of too many connections; connect again later"
        )

    def _refuse(self, status: int, detail: str) -> None:
        """Send a problem document and close the connection."""
        if self.transport.is_closing():
            return
        self.transport.write(refusal_response(status, detail))
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
            self._start_plain()
            self._on_upgrade()
        except (httptools.HttpParserError, RefusedRequest) as error:
            is_served = self._unstarted is not None
            self._start_plain()
            self._refusal = self._refusal or refusal_of(error, data)
            if is_served and self._running is None:
                self.transport.close()
            else:
                self._end_with(self._refusal)
        else:
            if self._unstarted is not None:
                self._start_plain()

    def _check_progress(self) -> None:
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            raise RefusedRequest(431, f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")
        if self._framing_bytes > MAX_FRAMING_BYTES:
            raise RefusedRequest(400, "chunk headers exceed 16 times the body; send larger chunks")

    def give_up(self, detail: str) -> None:
        """Respond with 408 and close, because a request head or body did not arrive in time."""
        self.head_since = self.body_since = None
        self._refusal = self._refusal or RefusedRequest(HTTPStatus.REQUEST_TIMEOUT, detail)
        self._end_with(self._refusal)

    def _end_with(self, refusal: RefusedRequest) -> None:
        if self._running is None:
            self._refuse(refusal.status, str(refusal))
        elif self._running_cycle is not self.cycle or self.cycle.response_started or not self.cycle.more_body:
            # Close only after the response in progress: it belongs to an earlier request, or it has begun and
            # nothing else may be written into it.
            self._closes_after_response = True
        else:
            self.cycle.disconnected = True
            self._running.cancel()
            self._refuse(refusal.status, str(refusal))

    def _should_upgrade(self) -> bool:
        # A WebSocket handshake with any method but GET would get no response.
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
            # The parser treats all further bytes as another protocol, so this request is served without a
            # body.
            self.body_since = None
            self.cycle.keep_alive = False
            self.cycle.more_body = False
            self.cycle.message_event.set()

    # --- the parser's events

    def on_message_begin(self) -> None:
        # The ASGI scope is created when the head is complete, and only for requests that go through ASGI.
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._header_bytes = 0
        self._hosts: list[bytes] = []
        self._content_length = 0
        self._is_chunked = False
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > MAX_TARGET_BYTES:
            self._refuse_later(414, f"the target of the request is longer than {MAX_TARGET_BYTES} bytes")
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        self._header_bytes += len(name) + len(value)
        if len(self.headers) > MAX_HEADERS or self._header_bytes > MAX_HEAD_BYTES:
            self._refuse_later(
                431, f"a request may have {MAX_HEADERS} headers and {MAX_HEAD_BYTES} bytes of them at most"
            )
        if name in _CHECKED_HEADERS:
            self._check_header(name, value.strip())

    def _check_header(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts.append(value)
        elif name == b"content-length":
            self._content_length = int(value) if value.isdigit() else 0
        elif name == b"expect":
            if value.lower() != b"100-continue":
                self._refuse_later(417, "the only supported expectation is 100-continue")
            self.expect_100_continue = True
        else:
            if value.lower() != b"chunked":
                self._refuse_later(400, "the only supported transfer encoding is chunked")
            self._is_chunked = True

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
            self._refuse_later(429, f"more than {MAX_PIPELINED} pipelined requests; wait for responses")
        target = path_of(self.url, method, self._hosts)
        if target is None:
            self._refuse_later(400, "the target of the request is not a path, nor a URL of its host")
        self.url = target
        if self.no_place is not None and self.url.partition(b"?")[0] not in SYSTEM_PATHS:
            self._refuse_later(self.no_place.status, self.no_place.detail)
        self.body_since = self.loop.time()
        plain = self._plain_exchange(method.decode(), version)
        if plain is None:
            self._start_general()
        else:
            self.cycle = plain  # type: ignore[assignment]
            self._unstarted = plain

    def _plain_exchange(self, method: str, version: str) -> PlainHttpExchange | None:
        """Return the current request as a plain request, or None if it has to go through ASGI."""
        if (
            self.plain_app is None
            or self.no_place is not None
            or self.expect_100_continue
            or self._is_chunked
            or self._content_length > MAX_PLAIN_BODY_BYTES
            or not (self.cycle is None or self.cycle.response_complete)
            or self.parser.should_upgrade()
        ):
            return None
        target = PLAIN_TARGET.fullmatch(self.url)
        if target is None or not self.plain_app.is_plain(method, target[1]):
            return None
        return PlainHttpExchange(
            method,
            target[1],
            target[2] or b"",
            self.headers,
            self.address,
            flow=self.flow,
            transport=self.transport,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
            on_lasting=self._on_lasting,
        )

    def _start_plain(self) -> None:
        """Start the plain request in the received bytes: without a task if possible, and if its body is complete."""
        plain = self._unstarted
        if plain is None:
            return
        self._unstarted = None
        assert self.plain_app is not None
        self._running_cycle, self._is_lasting = plain, False
        request = None if plain.more_body else self.plain_app.begin(plain, self._on_plain_end)
        if request is None:
            self._run(plain, self.plain_app.serve(plain))
        elif self._running_cycle is plain:
            self._running = request

    def _start_general(self) -> None:
        """Pass the request to uvicorn, which handles it as if its head had just arrived."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()
        if self.no_place is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = max(0, self._framing_bytes - 17 * len(body))
        cycle: object = self.cycle
        if isinstance(cycle, PlainHttpExchange):
            cycle.on_body(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: object = self.cycle
        if isinstance(cycle, PlainHttpExchange):
            cycle.on_message_complete()
        else:
            super().on_message_complete()
        self.body_since = None
        # The next head begins with the next byte.
        self._is_in_head = True

    def _refuse_later(self, status: int, detail: str) -> NoReturn:
        """Refuse the request from a parser callback; kept, because the parser raises its own exception instead."""
        self._refusal = self._refusal or RefusedRequest(status, detail)
        raise self._refusal

    def on_response_complete(self) -> None:
        """Do the same as uvicorn, but without a keep-alive timer: the server's sweep closes idle connections."""
        self.server_state.total_requests += 1
        if self._closes_after_response:
            self.transport.close()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    # --- the application

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope[SEND_WHOLE] = partial(write_response, cycle)  # type: ignore[literal-required]
        cycle.scope[ON_LASTING] = self._on_lasting  # type: ignore[literal-required]
        cycle.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
        self._run(cycle, cycle.run_asgi(app))

    def _run(self, cycle: RequestResponseCycle | PlainHttpExchange, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._running, self._running_cycle = task, cycle
        self._is_lasting = False
        self.tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_lasting(self) -> None:
        self._is_lasting = True

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.logger.error("HTTP request failed", exc_info=error)
        if self._running is task:
            self._on_end()

    def _on_plain_end(self, plain: PlainHttpExchange) -> None:
        # The next request may have started already, when the response was complete.
        if self._running_cycle is plain:
            self._on_end()

    def _on_end(self) -> None:
        cycle = self._running_cycle
        if isinstance(cycle, PlainHttpExchange) and not (cycle.response_complete or cycle.disconnected):
            # The request failed or was cancelled, and will get no response.
            self.transport.close()
        if self._closes_after_response:
            self.transport.close()
        self._running = self._running_cycle = None
        self._is_lasting = False
        self.idle_since = self.loop.time()
