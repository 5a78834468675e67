"""Server-sent events: an endless response, sent as fast as the client reads.

Events are fetched only after the socket has taken the previous ones, so a client that does not read takes one
small chunk of memory. A comment is sent periodically to show that the connection is alive. A failure ends the
stream with an event `problem` that has a problem document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.gateway.http.problems import problem_of
from penstock.gateway.push.stream import Event

CONTENT_TYPE = "text/event-stream"
KEEP_ALIVE_SECONDS = 20.0
MAX_EVENTS = 256
MAX_BYTES = 32 * 1024
RETRY_MS = 500
"""Time in milliseconds after which a client reconnects."""


class EventSource(Protocol):
    """Source of the events of a stream."""

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        """Return some events. If there are none, wait up to `patience_seconds`, then return an empty sequence.

        May be cancelled.
        """
        ...

    @property
    def is_exhausted(self) -> bool:
        """True if the stream has to end: to get more, the client has to reconnect with the last event id."""
        ...

    async def finish(self) -> None:
        """Release the resources of the source. Called once at the end of the stream, also after a failure."""
        ...


class EventStream(Response):
    def __init__(self, source: EventSource, request_id: str) -> None:
        super().__init__(headers={"content-type": CONTENT_TYPE, "x-accel-buffering": "no"})
        # Remove the length that starlette sets: a stream has none.
        del self.headers["content-length"]
        self._source = source
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_events(send)
        finally:
            # Runs also after a cancellation, because the client has left or the gateway stops.
            await self._source.finish()
            await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, send: Send) -> None:
        body = b"retry: %d\n\n" % RETRY_MS
        while True:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if self._source.is_exhausted:
                return
            try:
                events = await self._source.take(MAX_EVENTS, MAX_BYTES, KEEP_ALIVE_SECONDS)
            except (PenstockError, OSError) as error:
                await send({"type": "http.response.body", "body": self._explain(error), "more_body": True})
                return
            body = b"".join(b"id: %b\ndata: %b\n\n" % (each.id.encode(), each.body) for each in events)
            body = body or b":\n\n"

    def _explain(self, error: Exception) -> bytes:
        problem = problem_of(error)
        assert problem is not None, error
        return b"event: problem\ndata: %b\n\n" % msgspec.json.encode(problem.document(self._request_id))
