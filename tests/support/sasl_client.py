"""SASL logins byte by byte, over a plain or TLS socket, to see exactly what a broker answers."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path
from typing import Any, Self

from penstock.config import Address
from penstock.security.scram import ScramClient, ScramMechanism
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.messages import decode_response_frame, encode_request_frame

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36


class Closed(Exception):
    """The broker has closed the connection."""


class SaslClient:
    def __init__(self, address: Address, authority: Path | None = None) -> None:
        raw = socket.create_connection((address.host, address.port), timeout=20)
        self._socket: socket.socket = raw
        if authority is not None:
            context = ssl.create_default_context(cafile=str(authority))
            self._socket = context.wrap_socket(raw, server_hostname=address.host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except OSError:
            raise Closed from None

    def receive(self) -> bytes:
        """Receive one frame without its size. Raises Closed."""
        size = struct.unpack(">i", self._receive(SIZE_PREFIX))[0]
        return self._receive(size) if size else b""

    def _receive(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            try:
                more = self._socket.recv(count - len(content))
            except OSError:
                raise Closed from None
            if not more:
                raise Closed
            content += more
        return content

    def ask(self, api_key: int, version: int, fields: dict[str, Any]) -> Any:
        self.send(encode_request_frame(api_key, version, 5, "test", fields))
        return decode_response_frame(api_key, version, memoryview(self.receive()))

    def versions(self) -> Any:
        return self.ask(API_VERSIONS, 0, {})

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(HANDSHAKE, version, {"mechanism": mechanism})

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.ask(AUTHENTICATE, version, {"auth_bytes": token})

    def plain(self, user: str, password: str) -> Any:
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(f"\0{user}\0{password}".encode())

    def scram(self, user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> Any:
        """Log in, and check the broker's proof."""
        assert self.handshake(mechanism).error_code == 0
        client = ScramClient(mechanism, user, password, "abc")
        first = self.authenticate(client.first())
        if first.error_code:
            return first
        final = self.authenticate(client.final(first.auth_bytes))
        if not final.error_code:
            client.check(final.auth_bytes)
        return final

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; False if it sends something instead."""
        try:
            self._receive(1)
        except Closed:
            return True
        return False
