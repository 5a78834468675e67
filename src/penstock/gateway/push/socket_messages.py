"""Messages of a WebSocket: JSON text that matches a declared schema, problems, and the end of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.types import Message, Send
from uvicorn.protocols.utils import ClientDisconnected

from penstock.errors import PenstockError
from penstock.gateway.http.problems import CONTENT_TYPE, Problem, problem_of
from penstock.gateway.http.schema import Mismatch, Schema, check
from penstock.gateway.http.strict_json import parse

_CLOSE_CODES_FROM = 4_000
_MAX_REASON_BYTES = 120
_ENCODER = msgspec.json.Encoder()


def read_message(message: Message, schema: Schema) -> dict[str, Any]:
    """Parse a message of a client; raises Problem unless it is JSON text that matches the schema."""
    text = message.get("text")
    if text is None:
        raise invalid("messages must be JSON text")
    value = parse(text.encode())
    try:
        check(value, schema)
    except Mismatch as error:
        raise invalid(f"{error.pointer or 'the message'}: {error}") from None
    assert isinstance(value, dict)
    return value


async def send_json(send: Send, value: Any) -> None:
    await send({"type": "websocket.send", "text": _ENCODER.encode(value).decode()})


async def close_socket(send: Send, ended: asyncio.Task[None], request_id: str) -> None:
    """Close a connection whose task has ended. If the task failed, send the problem document first."""
    error = ended.exception()
    if error is None or isinstance(error, ClientDisconnected):
        return
    if not isinstance(error, PenstockError | OSError):
        raise error
    problem = problem_of(error)
    assert problem is not None, error
    await send_json(send, {"error": problem.document(request_id)})
    reason = problem.detail.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
    await send({"type": "websocket.close", "code": _CLOSE_CODES_FROM + problem.status, "reason": reason})


async def refuse(problem: Problem, request_id: str, send: Send) -> None:
    """Refuse a handshake with an HTTP response that has a problem document."""
    headers = {"content-type": CONTENT_TYPE, **problem.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": encoded})
    body = msgspec.json.encode(problem.document(request_id))
    await send({"type": "websocket.http.response.body", "body": body})


def invalid(detail: str) -> Problem:
    return Problem(400, detail, error="INVALID_REQUEST")
