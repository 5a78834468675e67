"""Sockets, as a seam: the four calls a connection makes, and where connected streams come from.

`Socket` is a connected, non-blocking byte stream: its calls never wait, they raise BlockingIOError. The real
one sits on the event loop's reader and writer callbacks; the simulated one has the same face.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from typing_extensions import Buffer

from penstock.storage.disk import File


class Socket(Protocol):
    @property
    def peer(self) -> str:
        """The other side's address, for logs and rights; `host:port`."""
        ...

    def recv_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 when the peer has closed."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        """Bytes taken, perhaps fewer than given; `more` says that further bytes follow at once."""
        ...

    def sendfile(self, file: File, position: int, length: int) -> int:
        """Bytes taken straight from a file's pages."""
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever there is something to read; None stops it (the peer is then held back)."""
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(self, host: str, port: int, accept: Callable[[Socket], None]) -> Listener: ...

    async def connect(self, host: str, port: int) -> Socket: ...
