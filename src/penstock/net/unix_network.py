"""Network of Unix sockets: a path takes the place of host and port.

Only processes of the user that created the socket can connect, because its mode is 0600.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from penstock.errors import ConfigError
from penstock.net.accepting import Accepting
from penstock.net.network import Socket, StreamSocket

MAX_PATH_BYTES = 103
"""Maximum length of a Unix socket's path on all systems: Linux allows 107 bytes, macOS 103."""

_BACKLOG = 128
_OWNER_ONLY = 0o600


class UnixNetwork:
    """`Network` whose hosts are paths of sockets. Ports have no meaning."""

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> UnixListener:
        """Listen on a path. A socket left by a process that has ended is replaced."""
        check_socket_path(host)
        with suppress(FileNotFoundError):
            os.unlink(host)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(host)
            os.chmod(host, _OWNER_ONLY)  # before `listen`, so that no connection comes earlier
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        return UnixListener(listening, host, accept)

    async def connect(self, host: str, port: int) -> StreamSocket:
        check_socket_path(host)
        loop = asyncio.get_running_loop()
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.setblocking(False)
        try:
            await loop.sock_connect(connecting, host)
        except BaseException:
            connecting.close()
            raise
        return StreamSocket(connecting, host, loop)


class UnixListener:
    """`Listener` on a path. The path is removed when the listener is closed."""

    port = 0

    def __init__(self, listening: socket.socket, path: str, accept: Callable[[Socket], bool]) -> None:
        self._path = path
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        # The clients are processes of this system, which may use reserved descriptors.
        self._accepting = Accepting([listening], self._take, spares_descriptors=False)

    def _take(self, connected: socket.socket, _address: object) -> bool:
        return self._accept(StreamSocket(connected, self._path, self._loop))

    def close(self) -> None:
        self._accepting.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def check_socket_path(path: str) -> None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(
            f"{path} is too long for a socket: {len(os.fsencode(path))} bytes, at most {MAX_PATH_BYTES}; "
            "use a data directory with a shorter path"
        )
