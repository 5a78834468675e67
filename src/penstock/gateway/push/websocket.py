"""A topic or a mailbox over a WebSocket: the client grants credit for messages, and acknowledges or sends messages.

    client   {"credit": 100}          the gateway may send 100 more messages
             {"ack": "<id>"}          this event and all before it are processed (streams of a group)
             {"send": {...}}          a message to a user (streams of a mailbox)
    server   {"id": "<id>", "message_id": ...}    a message as in server-sent events, with the event id as `id`
             {"sent": {...}}          the outcome of a send
             {"error": {...}}         a problem document; the connection is closed after it

Without credit no messages are read or sent. Any other message of the client closes the connection. Close codes
are 1001 (the gateway stops), 1008 (the login has ended), 1011 (an internal error) and 4000 + the status of the
problem; `http/websocket_connection.py` adds 1008 (too many control frames) and 1013 (the connection was closed
to make room for another).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Send

from penstock.gateway.http.schema import Schema
from penstock.gateway.push.socket_messages import close_socket, invalid, read_message
from penstock.gateway.push.sse import EventSource
from penstock.gateway.push.stream import Event

MAX_CREDIT = 1_000_000
MAX_EVENTS = 128
MAX_BYTES = 32 * 1024
_PATIENCE_SECONDS = 3_600.0

OnMessage = Callable[[dict[str, Any], Send], Awaitable[None]]
"""Function that handles the fields of a client's message other than `credit`. A Problem closes the connection."""


class SocketStream:
    """An accepted WebSocket and its source of events."""

    def __init__(self, source: EventSource, schema: Schema, on_message: OnMessage, request_id: str) -> None:
        """Create the stream. Messages of the client must match `schema`."""
        self._source = source
        self._schema = schema
        self._on_message = on_message
        self._request_id = request_id
        self._credit = 0
        self._has_credit = asyncio.Event()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve until either side ends the connection, then release the source."""
        sending = asyncio.get_running_loop().create_task(self._send_events(send))
        listening = asyncio.get_running_loop().create_task(self._listen(receive, send))
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
            await close_socket(send, sending if sending.done() else listening, self._request_id)
        finally:
            sending.cancel()
            listening.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)
            await self._source.finish()

    async def _listen(self, receive: Receive, send: Send) -> None:
        """Read messages until the client disconnects; raises Problem for an invalid message."""
        while (message := await receive())["type"] != "websocket.disconnect":
            asked = read_message(message, self._schema)
            await self._on_message(asked, send)
            if "credit" in asked:
                self._credit += asked["credit"]
                if self._credit > MAX_CREDIT:
                    raise invalid(f"all credits together must be at most {MAX_CREDIT}")
                self._has_credit.set()

    async def _send_events(self, send: Send) -> None:
        while True:
            await self._has_credit.wait()
            events = await self._source.take(min(self._credit, MAX_EVENTS), MAX_BYTES, _PATIENCE_SECONDS)
            for event in events:
                await send({"type": "websocket.send", "text": _text(event)})
            self._credit -= len(events)
            if self._credit == 0:
                self._has_credit.clear()


def _text(event: Event) -> str:
    return f'{{"id":"{event.id}",{event.body[1:].decode()}'
