"""A small blocking HTTP client that can send anything, and a parser of the responses. Every wait is bounded."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes
    is_closed: bool
    """Whether the server closed the connection after the response."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawHttp:
    """An HTTP connection."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self._unread = b""

    def __enter__(self) -> RawHttp:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, seconds: float = PATIENCE_SECONDS) -> RawAnswer:
        """Read the next response; EOFError if the server closes the connection."""
        self.socket.settimeout(seconds)
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        self._unread = rest
        length = int(headers.get("content-length", "0"))
        while len(self._unread) < length:
            self._more()
        body, self._unread = self._unread[:length], self._unread[length:]
        return RawAnswer(
            int(status_line.split(" ")[1]),
            headers,
            body,
            self.is_closed() if headers.get("connection") == "close" else False,
        )

    def is_closed(self, seconds: float = 5.0) -> bool:
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _more(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise EOFError(self._unread[:200])
        self._unread += data


def ask(port: int, data: bytes) -> RawAnswer:
    """Send bytes on a new connection and return the response."""
    with RawHttp(port) as client:
        client.send(data)
        return client.receive()


def request(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    content_type: str = "application/json",
    **headers: str,
) -> RawAnswer:
    """Send a well-formed request with this content."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    if body:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ask(port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def wait_until_ended(client: RawHttp, seconds: float) -> float:
    """Wait until the connection has ended, and return the seconds that it took."""
    started = time.monotonic()
    client.socket.settimeout(seconds)
    try:
        while client.socket.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started
