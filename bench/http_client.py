"""A minimal HTTP connection: prepared requests, responses with a length, thousands per process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, cast

CONNECTING_AT_ONCE = 100
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


class HttpConnection(asyncio.Protocol):
    """HTTP connection. Responses come in request order, so pending requests are a queue."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[HttpAnswer]] = deque()
        self._transport: asyncio.Transport | None = None

    def ask(self, request: bytes) -> asyncio.Future[HttpAnswer]:
        assert self._transport is not None
        answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            answer.set_exception(ConnectionResetError("the server has closed the connection"))
        else:
            self._waiting.append(answer)
            self._transport.write(request)
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(ConnectionResetError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head_end := self._received.find(_HEAD_END)) >= 0:
            start = head_end + len(_HEAD_END)
            place = self._received.find(_LENGTH, 0, start)
            line_end = self._received.find(b"\r\n", place)
            end = start + int(self._received[place + len(_LENGTH) : line_end])
            if len(self._received) < end:
                return
            answer = HttpAnswer(int(self._received[9:12]), bytes(self._received[start:end]))
            del self._received[:end]
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)


async def connect_http(port: int, count: int) -> list[HttpConnection]:
    loop = asyncio.get_running_loop()
    connections: list[HttpConnection] = []
    while len(connections) < count:
        together = min(CONNECTING_AT_ONCE, count - len(connections))
        opened = await asyncio.gather(
            *(loop.create_connection(HttpConnection, "127.0.0.1", port) for _ in range(together))
        )
        connections += [connection for _, connection in opened]
    return connections


def http_request(
    method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: bench"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body
