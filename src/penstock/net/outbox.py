"""Responses on their way to a peer: in order, as much as the peer takes at a time, files straight from their
pages.

Bytes of a file that are not in memory are read in a pool first, a piece at a time: a sendfile of them would
block the loop. A long response is sent in turns, so that other connections are served in between. Loop thread
only.
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
"""Most bytes of a file that one call sends or reads."""
_TURN_BYTES = 1 << 20
_TURN_SECONDS = 0.0005
"""A turn ends after this many bytes or seconds, whichever comes first; a piece is always sent."""
_COPIED_SLICE_BYTES = 16 << 10
_JOINED_BYTES = 64 << 10
"""Up to this size, responses in memory are joined: one copy is cheaper than many buffers."""


class Sender(Protocol):
    """The connection whose responses are sent."""

    def on_sent(self, count: int) -> None: ...

    def on_sendable(self) -> None:
        """Report that the socket takes bytes again: call `send` again."""
        ...

    def on_broken(self, error: Exception | None) -> None:
        """Report that nothing more can be sent; without an error the peer has just disconnected."""
        ...


class _Nobody:
    """The connection of a closed outbox."""

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
        """Bytes of memory that unsent responses hold."""
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
        """Whether sending waits for the peer to read, or for its next turn."""
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
        """Send what the peer takes now, the rest when it takes more."""
        if self._parts and not (self._is_closed or self._is_reading or self._awaits_turn):
            self._send_parts()

    def close(self) -> None:
        self._is_closed = True
        self._parts.clear()
        self.memory_bytes = 0
        self._sender = _NOBODY  # the connection holds its outbox: leave no reference cycle

    def _send_parts(self) -> None:
        try:
            if self.unsent_bytes == self.memory_bytes <= _JOINED_BYTES:
                self._send_joined()
            if self._parts and not self._send_turn():
                self._wait(False)  # or a writable socket would call back for as long as the disk takes
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
        """Send parts until none is left; False when the disk or the next turn has to be waited for."""
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
        """Send the usual case, small responses of which nothing is sent yet, in as few steps as possible."""
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
                raise OSError(f"{part} ends before its length")
            return sent
        self._is_reading = True
        self._threads.run("read", lambda: part.file.pread(position, length)).add_done_callback(self._on_read)
        return 0

    def _on_read(self, read: asyncio.Future[bytes]) -> None:
        """Put bytes that were read from the disk in the place of the first part of the slice."""
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
            self._sender.on_broken(OSError(f"{part} ends before its length"))
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
