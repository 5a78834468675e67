"""Unsent responses to a peer: sent in order, as fast as the peer accepts them, with files sent from the page
cache.

Bytes of a file that are not in the page cache are first read in a thread pool, a piece at a time, because a
sendfile of them would block the loop. A long response is sent in turns, so that other connections are served
in between. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from typing_extensions import Buffer

from penstock.net.network import Socket
from penstock.net.response import Part, Parts
from penstock.records.log_slice import LogSlice
from penstock.threads import Threads

_BUFFERS_PER_SEND = 256
_PIECE_BYTES = 256 << 10
"""Maximum number of bytes of a file that one call sends or reads."""
_TURN_BYTES = 1 << 20
_TURN_SECONDS = 0.0005
"""A turn ends after _TURN_BYTES or this many seconds, whichever comes first, but sends at least one piece."""
_COPIED_SLICE_BYTES = 16 << 10
_JOINED_BYTES = 64 << 10
"""Total size up to which responses in memory are joined: one copy is cheaper than many buffers."""


class Sender(Protocol):
    """The connection whose responses are sent."""

    def on_sent(self, count: int) -> None: ...

    def on_sendable(self) -> None:
        """Report that the socket accepts bytes again, or that the next turn begins. The sender must call
        `send` again.
        """
        ...

    def on_broken(self, error: Exception | None) -> None:
        """Report that nothing more can be sent. `error` is None if the peer has just disconnected."""
        ...


class _Nobody:
    """Sender of a closed outbox, which ignores all calls."""

    def on_sent(self, count: int) -> None: ...

    def on_sendable(self) -> None: ...

    def on_broken(self, error: Exception | None) -> None: ...


_NOBODY = _Nobody()


class Outbox:
    def __init__(
        self, socket: Socket, threads: Threads, sender: Sender, monotonic: Callable[[], float]
    ) -> None:
        self.unsent_bytes = 0
        self.memory_bytes = 0
        """Memory that unsent responses hold, in bytes."""
        self._socket = socket
        self._threads = threads
        self._sender: Sender = sender
        self._parts: deque[Part] = deque()
        self._head_sent = 0
        self._is_waiting = False
        self._is_reading = False
        self._awaits_turn = False
        self._is_closed = False
        self._monotonic = monotonic

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def is_blocked(self) -> bool:
        """True if sending waits for the peer to read or for the next turn."""
        return self._is_waiting or self._awaits_turn

    def put(self, parts: Parts) -> None:
        if len(parts) == 1 and type(part := parts[0]) is bytes and part:
            self.unsent_bytes += len(part)
            self.memory_bytes += len(part)
            self._parts.append(part)
            return
        for part in parts:
            if not (size := len(part)):
                continue
            self.unsent_bytes += size
            if type(part) is LogSlice and part.length <= _COPIED_SLICE_BYTES:
                # One copy and one send are cheaper than a sendfile between two sends.
                content = part.file.pread_cached(part.position, part.length)
                if content is not None and len(content) == part.length:
                    part = content
            if type(part) is not LogSlice:
                self.memory_bytes += size
            self._parts.append(part)

    def send(self) -> None:
        """Send the bytes that the peer accepts now. The rest is sent when it accepts more."""
        if self._parts and not (self._is_closed or self._is_reading or self._awaits_turn):
            self._send_parts()

    def close(self) -> None:
        self._is_closed = True
        self._parts.clear()
        self.memory_bytes = 0
        self._sender = _NOBODY  # Break the reference cycle with the connection.

    def _send_parts(self) -> None:
        try:
            if self.unsent_bytes == self.memory_bytes <= _JOINED_BYTES:
                self._send_joined()
            if self._parts and not self._send_turn():
                self._wait(False)  # Otherwise a writable socket calls back all the time.
                return
        except (BlockingIOError, InterruptedError):
            self._wait(True)
            return
        except ConnectionError:
            self._sender.on_broken(None)
            return
        except OSError as error:
            self._sender.on_broken(error)
            return
        self._wait(False)

    def _send_turn(self) -> bool:
        """Send parts until none is left. Returns False if sending has to wait for the disk or for the next turn."""
        turn_end, left = self._monotonic() + _TURN_SECONDS, _TURN_BYTES
        while self._parts:
            part = self._parts[0]
            sent = self._send_slice(part) if type(part) is LogSlice else self._send_buffers()
            if sent == 0:
                return False
            self._consume(sent)
            left -= sent
            if self._parts and (left <= 0 or self._monotonic() >= turn_end):
                self._awaits_turn = True
                asyncio.get_running_loop().call_soon(self._on_turn)
                return False
        return True

    def _on_turn(self) -> None:
        self._awaits_turn = False
        self._sender.on_sendable()

    def _send_joined(self) -> None:
        """Send small responses, of which nothing is sent yet, in as few steps as possible. This is the usual case."""
        parts = self._parts
        content = parts[0] if len(parts) == 1 else b"".join(parts)  # type: ignore[arg-type]  # no slice is there
        sent = self._socket.sendmsg((content,), False)  # type: ignore[arg-type]
        if sent < self.unsent_bytes:
            self._consume(sent)
            return
        parts.clear()
        self.unsent_bytes = self.memory_bytes = 0
        self._sender.on_sent(sent)

    def _wait(self, waiting: bool) -> None:
        if waiting != self._is_waiting:
            self._is_waiting = waiting
            self._socket.on_writable(self._sender.on_sendable if waiting else None)

    def _send_buffers(self) -> int:
        buffers: list[Buffer] = []
        more = False
        for part in self._parts:
            if type(part) is LogSlice or len(buffers) == _BUFFERS_PER_SEND:
                more = True
                break
            buffers.append(part)
        if self._head_sent:
            buffers[0] = memoryview(buffers[0])[self._head_sent :]
        return self._socket.sendmsg(buffers, more)

    def _send_slice(self, part: LogSlice) -> int:
        position, length = part.position + self._head_sent, min(part.length - self._head_sent, _PIECE_BYTES)
        if part.file.is_cached(position, length):
            sent = self._socket.sendfile(part.file, position, length)
            if sent == 0:
                raise OSError(f"{part} is shorter than its length: the file was truncated")
            return sent
        self._is_reading = True
        self._threads.run("read", lambda: part.file.pread(position, length)).add_done_callback(self._on_read)
        return 0

    def _on_read(self, read: asyncio.Future[bytes]) -> None:
        """Replace the first piece of the slice by the bytes that were read from the disk."""
        self._is_reading = False
        if self._is_closed or read.cancelled():
            return
        if (error := read.exception()) is not None:
            self._sender.on_broken(error if isinstance(error, Exception) else None)
            return
        part = self._parts.popleft()
        assert type(part) is LogSlice
        content = read.result()
        if not content:
            self._sender.on_broken(OSError(f"{part} is shorter than its length: the file was truncated"))
            return
        rest = part.after(self._head_sent + len(content))
        if rest.length:
            self._parts.appendleft(rest)
        self._parts.appendleft(content)
        self.memory_bytes += len(content)
        self._head_sent = 0
        self._sender.on_sendable()

    def _consume(self, count: int) -> None:
        self._sender.on_sent(count)
        self.unsent_bytes -= count
        while count:
            left = len(self._parts[0]) - self._head_sent
            if count < left:
                self._head_sent += count
                return
            part = self._parts.popleft()
            if type(part) is not LogSlice:
                self.memory_bytes -= len(part)
            self._head_sent = 0
            count -= left
