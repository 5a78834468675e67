"""Acceptance of new connections: a few in each turn of the event loop, and none if only reserved file
descriptors are left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Any

RESERVED_DESCRIPTORS = 64
"""Number of file descriptors that client connections never get, so that logs and connections to other brokers
can be opened.
"""

_LARGEST_RESERVE_SHARE = 4
_ACCEPTS_PER_WAKEUP = 8
"""Maximum number of connections that are accepted in one turn of the loop. Each takes some 60 us, for which
other clients wait.
"""
_PAUSE_SECONDS = 0.1


class Accepting:
    """Accepts connections of bound sockets until `close`. `take` returns False to pause accepting for a moment."""

    def __init__(
        self,
        bound: Sequence[socket.socket],
        take: Callable[[socket.socket, Any], bool],
        *,
        spares_descriptors: bool,
    ) -> None:
        self._bound = bound
        self._take = take
        self._spares_descriptors = spares_descriptors
        self._loop = asyncio.get_running_loop()
        for listening in bound:
            self._resume(listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._on_readable, listening)

    def _on_readable(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_WAKEUP):
            if self._spares_descriptors and only_reserved_descriptors_left(listening.fileno()):
                self._pause(listening)
                return
            try:
                connected, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                # There are no file descriptors or no memory left. New connections stay in the kernel's
                # backlog.
                self._pause(listening)
                return
            if not self._take(connected, address):
                self._pause(listening)
                return

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._resume, listening)

    def close(self) -> None:
        for listening in self._bound:
            self._loop.remove_reader(listening.fileno())
            listening.close()


def only_reserved_descriptors_left(descriptor: int) -> bool:
    """True if the next file descriptor of this process would be a reserved one. `descriptor` is any open
    descriptor.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        next_descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:
        return True
    os.close(next_descriptor)
    return next_descriptor >= limit - min(RESERVED_DESCRIPTORS, limit // _LARGEST_RESERVE_SHARE)
