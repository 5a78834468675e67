"""A topic over a WebSocket: the client grants credit for messages, and acknowledges them.

    client   {"credit": 100}          may be sent so many more
             {"ack": "<id>"}          everything up to this event is handled (streams of a group)
    server   {"id": "<id>", "message_id": ...}    as in server-sent events, the position beside the message
             {"error": {...}}         a problem document; the connection is closed after it

Without credit nothing is read or sent. Any other message of the client closes its connection. Close codes are
1001 (the gateway stops), 1011 (an internal error) and 4000 + the status of the problem;
`http/websocket_connection.py` adds 1008 (too many control frames) and 1013 (another connection needs the
place).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import Message, Receive, Send
from uvicorn.protocols.utils import ClientDisconnected

from penstock.errors import PenstockError
from penstock.gateway.http.problems import CONTENT_TYPE, Problem, problem_of
from penstock.gateway.http.strict_json import parse
from penstock.gateway.push.sse import EventSource
from penstock.gateway.push.stream import Event

MAX_CREDIT = 1_000_000
MAX_EVENTS = 128
MAX_BYTES = 32 * 1024
_PATIENCE_SECONDS = 3_600.0
_CLOSE_CODES_FROM = 4_000
_MAX_REASON_BYTES = 120


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A message of the client."""

    credit: int | None = None
    ack: str | None = None


class SocketStream:
    """An accepted connection and its source of events."""

    def __init__(self, source: EventSource, acknowledge: Callable[[str], None], request_id: str) -> None:
        """Create the stream; `acknowledge` takes the id of an event, and raises a Problem for any other text."""
        self._source = source
        self._acknowledge = acknowledge
        self._request_id = request_id
        self._credit = 0
        self._has_credit = asyncio.Event()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve until either side ends the connection; the source is released then."""
        sending = asyncio.get_running_loop().create_task(self._send_events(send))
        listening = asyncio.get_running_loop().create_task(self._listen(receive))
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
            await self._close(send, sending if sending.done() else listening)
        finally:
            sending.cancel()
            listening.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)
            await self._source.finish()

    async def _listen(self, receive: Receive) -> None:
        """Read messages until the client leaves; a Problem for an invalid message."""
        while (message := await receive())["type"] != "websocket.disconnect":
            asked = _read(message)
            if asked.ack:
                self._acknowledge(asked.ack)
            if asked.credit:
                self._credit += asked.credit
                if asked.credit < 0 or self._credit > MAX_CREDIT:
                    raise _invalid(
                        f"a credit must be above 0, and all credits together at most {MAX_CREDIT} together at most"
                    )
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

    async def _close(self, send: Send, ended: asyncio.Task[None]) -> None:
        error = ended.exception()
        if error is None or isinstance(error, ClientDisconnected):
            return
        if not isinstance(error, PenstockError | OSError):
            raise error
        problem = problem_of(error)
        assert problem is not None, error
        document = {"error": problem.document(self._request_id)}
        await send({"type": "websocket.send", "text": msgspec.json.encode(document).decode()})
        reason = problem.detail.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        await send({"type": "websocket.close", "code": _CLOSE_CODES_FROM + problem.status, "reason": reason})


async def refuse(problem: Problem, request_id: str, send: Send) -> None:
    """Respond to a handshake as to an HTTP request, with a problem document."""
    headers = {"content-type": CONTENT_TYPE, **problem.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": encoded})
    body = msgspec.json.encode(problem.document(request_id))
    await send({"type": "websocket.http.response.body", "body": body})


def _read(message: Message) -> _Asked:
    text: Any = message.get("text")
    if text is None:
        raise _invalid("messages must be JSON text")
    try:
        return msgspec.convert(parse(text.encode()), _Asked)
    except msgspec.ValidationError as error:
        raise _invalid(f'give {{"credit": n}} or {{"ack": id}}: {error}') from None


def _text(event: Event) -> str:
    return f'{{"id":"{event.id}",{event.body[1:].decode()}'


def _invalid(detail: str) -> Problem:
    return Problem(400, detail, error="INVALID_REQUEST")
