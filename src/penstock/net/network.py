"""Interface to the network: the calls that a connection makes on a socket, and the source of connected
sockets.

`Socket` is a connected, non-blocking byte stream: its calls never wait, but raise BlockingIOError. The real
one uses the event loop's reader and writer callbacks; the simulated one has the same interface.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from typing_extensions import Buffer

from penstock.net.accepting import Accepting
from penstock.records.log_slice import SliceFile


class Socket(Protocol):
    @property
    def peer(self) -> str:
        """Address of the peer for logs and authorization, as `host:port`."""
        ...

    def recv_into(self, buffer: memoryview) -> int:
        """Receive bytes and return their number; 0 if the peer has closed the connection."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        """Send bytes and return the number that was accepted, which may be lower than the number given.
        `more` means that further bytes follow at once.
        """
        ...

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        """Send bytes from the page cache of a file, without a copy, and return the number that was accepted."""
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` whenever there is something to read. None stops that, so that the peer has to wait."""
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> Listener:
        """Pass every new connection to `accept`. If it returns False, accepting pauses for a moment."""
        ...

    async def connect(self, host: str, port: int) -> Socket:
        """Connect to a host. Raises ConnectionRefusedError only if no address of the host has a listener."""
        ...


_MSG_MORE = getattr(socket, "MSG_MORE", 0)
# macOS has an os.sendfile, but it reports partial sends through an exception. Only that of Linux is used.
_HAS_SENDFILE = sys.platform == "linux"
_COPY_BYTES = 256 * 1024
_BACKLOG = 4096


class StreamSocket:
    """`Socket` on a real non-blocking connection, over TCP or a Unix socket."""

    __slots__ = ("_fd", "_loop", "_reading", "_socket", "_writing", "peer")

    def __init__(self, connected: socket.socket, peer: str, loop: asyncio.AbstractEventLoop) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._fd = connected.fileno()
        self._loop = loop
        self._reading = False
        self._writing = False
        self.peer = peer

    def recv_into(self, buffer: memoryview) -> int:
        return self._socket.recv_into(buffer)

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        if len(buffers) == 1 and not more:
            return self._socket.send(buffers[0])
        return self._socket.sendmsg(buffers, (), _MSG_MORE if more else 0)

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        descriptor = file.fileno()
        if descriptor is None or not _HAS_SENDFILE:
            return self._socket.send(file.pread(position, min(length, _COPY_BYTES)))
        return os.sendfile(self._fd, descriptor, position, length)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._loop.add_reader(self._fd, callback)
            self._reading = True
        elif self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._loop.add_writer(self._fd, callback)
            self._writing = True
        elif self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def close(self) -> None:
        self.on_readable(None)
        self.on_writable(None)
        self._socket.close()


class TcpSocket(StreamSocket):
    """`Socket` on a TCP connection."""

    __slots__ = ()

    def __init__(self, connected: socket.socket, peer: str, loop: asyncio.AbstractEventLoop) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(connected, peer, loop)


class TcpListener:
    """`Listener` on one or more bound addresses."""

    def __init__(
        self, bound: list[socket.socket], accept: Callable[[Socket], bool], send_buffer_bytes: int
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self.port: int = bound[0].getsockname()[1]
        self._accepting = Accepting(bound, self._take, spares_descriptors=True)

    def _take(self, connected: socket.socket, address: tuple[Any, ...]) -> bool:
        if self._send_buffer_bytes >= 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        return self._accept(TcpSocket(connected, format_address(address[0], address[1]), self._loop))

    def close(self) -> None:
        self._accepting.close()


def limit_send_buffer(fileno: int, send_buffer_bytes: int) -> None:
    """Set the size of the send buffer. The size of a listener's buffer applies to all connections that it accepts."""
    with socket.socket(fileno=os.dup(fileno)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


class TcpNetwork:
    """`Network` of the operating system. `send_buffer_bytes` is for accepted connections; -1 keeps the
    system's default.
    """

    def __init__(self, send_buffer_bytes: int = -1) -> None:
        self._send_buffer_bytes = send_buffer_bytes

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> TcpListener:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                bound.append(_bind(family, (address[0], bound[0].getsockname()[1] if bound else port)))
        except OSError:
            for listening in bound:
                listening.close()
            raise
        return TcpListener(bound, accept, self._send_buffer_bytes)

    async def connect(self, host: str, port: int) -> TcpSocket:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError = ConnectionRefusedError(f"no address for {host}")
        for family, kind, protocol, _, address in addresses:
            connecting = socket.socket(family, kind, protocol)
            connecting.setblocking(False)
            try:
                await loop.sock_connect(connecting, address)
            except OSError as error:
                connecting.close()
                if isinstance(failure, ConnectionRefusedError):
                    failure = error
                continue
            except BaseException:
                connecting.close()
                raise
            return TcpSocket(connecting, format_address(host, port), loop)
        raise failure


def _bind(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve_host(host: str, port: int) -> list[str]:
    """Addresses of a host, in the order in which to try them. Blocks. Raises OSError if there is none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
