"""A simulated connection: two sockets, with the bytes and closings that are on their way between them.

The seed decides how many bytes a call takes or gives. Each direction holds a bounded number of unread
bytes and keeps their order. Sockets call back as a level-triggered event loop does.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from typing_extensions import Buffer

from penstock.records.log_slice import SliceFile

if TYPE_CHECKING:
    from simulation.machine.network import SimulatedNetwork

_WINDOW_BYTES = (2_000, 20_000, 200_000)
_BITE_BYTES = (40, 1_000, 10_000, 100_000, 100_000, 100_000)
_NIBBLED_BYTES = 4_000
_END = b""
"""Closes a direction; follows its last bytes."""


class Stream:
    def __init__(
        self, network: SimulatedNetwork, number: int, client: tuple[str, int], server: tuple[str, int]
    ) -> None:
        self.number = number
        self.hosts = (client[0], server[0])
        self.window_bytes = network.random.choice(_WINDOW_BYTES)
        self.bite_bytes = network.random.choice(_BITE_BYTES)
        self.is_dropped = False
        self.client = SimulatedSocket(network, self, client[0], f"{server[0]}:{server[1]}")
        self.server = SimulatedSocket(network, self, server[0], f"{client[0]}:{client[1]}")
        self.client.other, self.server.other = self.server, self.client
        self._network = network

    def reset(self) -> None:
        """Break the connection for both sides, as a middlebox would."""
        self.client.break_off()
        self.server.break_off()

    def drop(self) -> None:
        """Drop all bytes from now on, unnoticed by both sides."""
        self.is_dropped = True

    def crash(self, host: str, notice_seconds: float) -> None:
        for socket in (self.client, self.server):
            if socket.host == host:
                socket.vanish()
                self._network.later(socket.other.break_off, notice_seconds or None)

    def end_if_closed(self) -> None:
        if self.client.is_closed and self.server.is_closed:
            self._network.forget(self)


class SimulatedSocket:
    other: SimulatedSocket

    def __init__(self, network: SimulatedNetwork, stream: Stream, host: str, peer: str) -> None:
        self.peer = peer
        self.host = host
        self.is_closed = False
        self._network = network
        self._stream = stream
        self._unread_bytes = 0
        """The bytes that this side has sent and the other side has not read."""
        self._on_the_way: deque[bytes] = deque()
        """The bytes and closings on their way to this side."""
        self._received = bytearray()
        self._moved_bytes = 0
        self._ended = False
        self._broken = False
        self._reading = _Watch(network, self._is_readable)
        self._writing = _Watch(network, self._is_writable)

    # --- Socket

    def recv_into(self, buffer: memoryview) -> int:
        self._check()
        if not self._received:
            if self._ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._bite(min(len(buffer), len(self._received)))
        buffer[:count] = self._received[:count]
        del self._received[:count]
        self.other._unread_bytes -= count
        self.other._writing.poke()
        return count

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        self._check()
        room = self._stream.window_bytes - self._unread_bytes
        offered = sum(memoryview(buffer).nbytes for buffer in buffers)
        if offered and room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._bite(min(offered, room))
        if count:
            self._unread_bytes += count
            self._transmit(_beginning(buffers, count))
        return count

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        room = self._stream.window_bytes - self._unread_bytes
        return self.sendmsg([file.pread(position, max(1, min(length, room)))], more=False)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._reading.set(callback)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writing.set(callback)

    def close(self) -> None:
        if self.is_closed:
            return
        unread = bool(self._received)
        self.vanish()
        if unread and not self._broken:
            self._network.later(self.other.break_off)
        else:
            self._transmit(_END)

    # --- the other end of the connection

    def deliver(self) -> None:
        """Receive the next bytes on the way to this side."""
        if self._stream.is_dropped or not self._on_the_way:
            return
        if self._network.is_severed(self.other.host, self.host):
            self._network.hold(self)
            return
        data = self._on_the_way.popleft()
        self._network.trace.record("net", self._stream.number, self.host, len(data), zlib.crc32(data))
        if self.is_closed:
            if data:
                self._network.later(self.other.break_off)
        elif data == _END:
            self._ended = True
        elif not self._broken:
            self._received += data
        self._reading.poke()

    def break_off(self) -> None:
        """Receive a reset: bytes that were received and not read are gone."""
        if self.is_closed or self._stream.is_dropped:
            return
        if self._network.is_severed(self.other.host, self.host):
            self._network.later(self.break_off, 1.0)
            return
        self._network.trace.record("net-reset", self._stream.number, self.host)
        self._broken = True
        self._received.clear()
        self._reading.poke()
        self._writing.poke()

    def vanish(self) -> None:
        """Close this side without a FIN, because it was closed or its process died."""
        self.is_closed = True
        self._reading.set(None)
        self._writing.set(None)
        self._stream.end_if_closed()

    def _transmit(self, data: bytes) -> None:
        self.other._on_the_way.append(data)
        self._network.later(self.other.deliver)

    def _bite(self, most: int) -> int:
        """Draw how many of the possible bytes one call moves; a long response does not come in small pieces
        only.
        """
        if self._moved_bytes < _NIBBLED_BYTES:
            most = min(most, self._stream.bite_bytes)
            if most > 1 and self._network.random.random() < 0.5:
                most = self._network.random.randint(1, most)
        self._moved_bytes += most
        return most

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._broken:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def _is_readable(self) -> bool:
        return bool(self._received) or self._ended or self._broken

    def _is_writable(self) -> bool:
        return self._broken or self._unread_bytes < self._stream.window_bytes


def _beginning(buffers: Sequence[Buffer], count: int) -> bytes:
    taken = bytearray()
    for buffer in buffers:
        taken += memoryview(buffer).cast("B")[: count - len(taken)]
    return bytes(taken)


class _Watch:
    """A callback that is repeated while the socket is ready, in the context that registered it."""

    def __init__(self, network: SimulatedNetwork, is_ready: Callable[[], bool]) -> None:
        self._network = network
        self._is_ready = is_ready
        self._callback: Callable[[], None] | None = None
        self._context: Context | None = None
        self._scheduled = False

    def set(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is not None:
            self._context = copy_context()
            self.poke()

    def poke(self) -> None:
        if self._callback is not None and not self._scheduled and self._is_ready():
            self._scheduled = True
            self._network.loop.call_soon(self._run, context=self._context)

    def _run(self) -> None:
        self._scheduled = False
        if self._callback is not None and self._is_ready():
            self._callback()
            self.poke()
