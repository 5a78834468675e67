"""One HTTP/1.1 connection to a receiver: one request at a time, and responses of limited size.

A call ends when the headers of the response are complete. The body is read for at most `DRAIN_SECONDS`, so that the
connection can be used again, and discarded. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import httptools

MAX_HEAD_BYTES: Final = 64 * 1024
"""Maximum size of the status line and the headers of a response."""
MAX_BODY_BYTES: Final = 64 * 1024
"""Maximum size of a body that is read; a longer body closes the connection."""
DRAIN_SECONDS: Final = 1.0
"""Time in seconds within which the body of a response must end; then the connection is closed."""
_FINAL_STATUS: Final = 200


class CallFailed(Exception):
    """A call that got no response. The message is the reason, for users."""


class Answer(NamedTuple):
    status: int
    retry_after: str = ""
    location: str = ""


class HttpClientConnection(asyncio.Protocol):
    def __init__(self, on_idle: Callable[[HttpClientConnection], None]) -> None:
        """Create a connection; it calls `on_idle` whenever it is ready for another request."""
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._draining: asyncio.TimerHandle | None = None
        self._kept: dict[bytes, str] = {}
        self._received = 0
        self._is_answered = False
        self.is_open = False

    # --- requests

    async def post(
        self, authority: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Answer:
        """Send a request and return the response; raises CallFailed if the connection ends first.

        Cancelling this call closes the connection.
        """
        if self._transport is None or not self.is_open:
            raise CallFailed("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._received, self._is_answered = 0, False
        self._kept.clear()
        lines = [f"POST {target} HTTP/1.1", f"host: {authority}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self._transport.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        self._transport.write(body)
        try:
            return await self._waiting
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting = None

    @property
    def has_received(self) -> bool:
        """True if at least one byte of the response to the last request has arrived."""
        return self._received > 0

    def close(self) -> None:
        self.is_open = False
        if self._draining is not None:
            self._draining.cancel()
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have no asyncio base class
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._waiting is None and self._draining is None:
            self.close()  # data without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the response is not HTTP: {error}")
        if not self._is_answered and self._received > MAX_HEAD_BYTES:
            self._fail(f"the headers of the response are longer than {MAX_HEAD_BYTES} bytes")
        elif self._draining is not None and self._received > MAX_HEAD_BYTES + MAX_BODY_BYTES:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(
            f"the receiver closed the connection: {error}" if error else "the receiver closed the connection"
        )

    def _fail(self, reason: str) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(CallFailed(reason))

    # --- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"retry-after", b"location"):
            self._kept[name.lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _FINAL_STATUS or self._is_answered:
            return
        self._is_answered = True
        if self._waiting is not None and not self._waiting.done():
            kept = self._kept
            self._waiting.set_result(Answer(status, kept.get(b"retry-after", ""), kept.get(b"location", "")))
        self._draining = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.close)

    def on_message_complete(self) -> None:
        if not self._is_answered:
            return  # an informational response, such as 100 Continue
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
        if self._parser.should_keep_alive() and self.is_open:
            self._on_idle(self)
        else:
            self.close()
