"""Interface of one HTTP request and its response, for `GatewayApplication`.

Requests arrive in two ways: through ASGI (`AsgiExchange`), or directly from the parser if they are plain
(`plain_exchange.py`). The application handles both with the same code, so that their responses are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from penstock.gateway.http.responses import JsonResponse

RawHeaders = Sequence[tuple[bytes, bytes]]
Begin = Callable[[int, RawHeaders], RawHeaders]
"""Function that is called with the status and headers of a response when it begins; returns the headers to send."""
SendWhole = Callable[[int, RawHeaders, bytes], Awaitable[None]]
"""Function that sends a complete response: status, headers and body."""

ON_LASTING = "penstock.on_lasting"
"""Key in the ASGI scope: a function to call if the response may take long because it waits for messages."""
TRANSPORT = "penstock.transport"
"""Key in the ASGI scope: the transport of the connection."""
SEND_WHOLE = "penstock.send_whole"
"""Key in the ASGI scope: the `SendWhole` of the connection."""


class ClientGone(Exception):
    """The client has disconnected, so no response is possible."""


class HttpExchange(Protocol):
    """One request, and the methods to respond to it."""

    method: str
    raw_path: bytes
    query_string: bytes
    headers: RawHeaders
    """Headers with lower-case names, as received."""
    address: str
    """IP address of the client; empty if it is unknown."""

    def certificate(self) -> bytes | None:
        """Return the client's TLS certificate, as DER; None if it sent none."""
        ...

    async def read_piece(self) -> tuple[bytes, bool]:
        """Return the next bytes of the body, and True if more may follow. Raises ClientGone after a disconnect."""
        ...

    async def respond(self, response: Response, begin: Begin) -> None:
        """Send the response, with the headers that `begin` returns."""
        ...

    def on_lasting(self) -> None:
        """Note that the response may take long, because it waits for messages."""
        ...


def certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    """Return the client's TLS certificate of a connection, as DER; None if it sent none."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)


class AsgiExchange:
    """A request that arrived through ASGI."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: RawHeaders = scope["headers"]
        self.address: str = scope["client"][0] if scope["client"] else ""
        self._scope = scope
        self._receive = receive
        self._send = send

    def certificate(self) -> bytes | None:
        return certificate_of(self._scope.get(TRANSPORT))

    async def read_piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), bool(message.get("more_body"))

    async def respond(self, response: Response, begin: Begin) -> None:
        if type(response) is JsonResponse and SEND_WHOLE in self._scope and self.method != "HEAD":
            send_whole: SendWhole = self._scope[SEND_WHOLE]
            headers = begin(response.status_code, response.raw_headers)
            await send_whole(response.status_code, headers, bytes(response.body))
            return

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = begin(message["status"], message["headers"])
            await self._send(message)

        await response(self._scope, self._receive, send)

    def on_lasting(self) -> None:
        if ON_LASTING in self._scope:
            self._scope[ON_LASTING]()
