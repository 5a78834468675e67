"""A client's connection on the server's side: frames in, answers out in the order of the requests.

Reading stops while too much of this client is under way (requests unanswered, bytes unsent, or a request that holds
back the next one), so a client that does not read its answers harms only itself. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from typing_extensions import Buffer

from penstock.clock import Clock
from penstock.errors import ProtocolError
from penstock.net.network import Socket
from penstock.net.request_memory import RequestMemory
from penstock.storage.log_slice import LogSlice
from penstock.threads import Threads
from penstock.wire.framing import SIZE_PREFIX, FrameReader

Part: TypeAlias = bytes | bytearray | memoryview | LogSlice
Parts: TypeAlias = list[Part]

_BUFFERS_PER_SEND = 256
_COLD_CHUNK_BYTES = 1 << 20
_COPIED_SLICE_BYTES = 16 << 10
_TURN_SECONDS = 0.002
"""How long requests of one connection are answered before it is the others' turn."""


@final
class Later:
    """An answer that is not ready yet. With `barrier` the connection dispatches nothing behind it until it is."""

    __slots__ = (
        "_abandoned",
        "_connection",
        "_watchers",
        "barrier",
        "done",
        "error",
        "parts",
        "request_bytes",
    )

    def __init__(self, *, barrier: bool = False) -> None:
        self.barrier = barrier
        self.done = False
        self.parts: Parts | None = None
        self.error: Exception | None = None
        self.request_bytes = 0
        self._connection: Connection | None = None
        self._watchers: list[Callable[[], None]] = []
        self._abandoned: Callable[[], None] | None = None

    def resolve(self, parts: Parts | None) -> None:
        """Give the answer; None for a request that gets none."""
        self.parts = parts
        self._finish()

    def fail(self, error: Exception) -> None:
        """There will be no answer: the connection is closed."""
        self.error = error
        self._finish()

    def lift_barrier(self) -> None:
        """Later requests may be dispatched now, though this one is not answered."""
        self.barrier = False
        if self._connection is not None:
            self._connection.answered()

    def when_done(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call back when the client is gone: whoever works on the answer may stop."""
        self._abandoned = callback

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def abandon(self) -> None:
        """Nobody waits for this any more."""
        if not self.done:
            self.done = True
            if self._abandoned is not None:
                self._abandoned()

    def _finish(self) -> None:
        self.done = True
        self.barrier = False
        for watcher in self._watchers:
            watcher()
        if self._connection is not None:
            self._connection.answered()


Answer: TypeAlias = Parts | Later | None


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_frame_bytes: int
    max_in_flight_requests: int
    max_unsent_bytes: int


class Traffic:
    """What all connections of a broker share: byte counters, the memory they hold, and the clock."""

    __slots__ = ("memory", "monotonic", "received_bytes", "sent_bytes")

    def __init__(self, memory: RequestMemory, clock: Clock) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.memory = memory
        self.monotonic = clock.monotonic


class Connection:
    def __init__(
        self,
        socket: Socket,
        handle: Callable[[memoryview], Answer],
        on_close: Callable[[Connection, Exception | None], None],
        *,
        limits: ConnectionLimits,
        threads: Threads,
        traffic: Traffic,
    ) -> None:
        self.peer = socket.peer
        self.closed = False
        self.progress = 0
        """Bumped whenever bytes move; a connection whose progress stands still is idle or stuck."""
        self._socket = socket
        self._handle = handle
        self._on_close = on_close
        self._limits = limits
        self._threads = threads
        self._traffic = traffic
        self._reader = FrameReader(limits.max_frame_bytes)
        self._frames: deque[memoryview] = deque()
        self._answers: deque[Parts | Later] = deque()
        self._output: deque[Part] = deque()
        self._head_sent = 0
        self._unsent_bytes = 0
        self._held_bytes = 0
        """Memory of this client: requests until they are answered, answers until they are sent."""
        self._sent_bytes = 0
        """Of the held bytes, those that were sent and are about to be released."""
        self._dispatching = False
        self._awaits_turn = False
        self._reading = True
        self._waiting_to_write = False
        self._reading_cold = False
        traffic.memory.connections += 1
        socket.on_readable(self._on_readable)

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer that is being worked on (a long poll, an fsync)."""
        return bool(self._answers) and not self._output

    @property
    def owes_reading(self) -> bool:
        """Whether an answer is ready that the client does not take."""
        return bool(self._output)

    @property
    def owes_sending(self) -> bool:
        """Whether the client has sent a part of a request."""
        return self._reader.is_inside_frame

    @property
    def hogs_memory(self) -> bool:
        """Whether it holds more than its share of memory that has run out."""
        return not self._traffic.memory.has_room(self._held_bytes)

    def close(self, error: Exception | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self._socket.close()
        self._frames.clear()
        for answer in self._answers:
            if type(answer) is Later:
                answer.abandon()
        self._answers.clear()
        self._output.clear()
        self._traffic.memory.connections -= 1
        self._traffic.memory.forget(self.answered)
        self._release(self._held_bytes)
        self._on_close(self, error)

    def answered(self) -> None:
        """A Later of this connection changed: go on with what it held back."""
        if not self.closed and not self._dispatching:
            self._dispatch()

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._reader.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self.progress += 1
        self._traffic.received_bytes += count
        self._hold(count)
        try:
            frames = self._reader.received(count)
        except ProtocolError as error:
            self.close(error)
            return
        if frames:
            self._frames.extend(frames)
            self._dispatch()
        elif not self._traffic.memory.has_room(self._held_bytes):
            self._hold_for_memory()

    def _dispatch(self) -> None:
        """Answer frames in order until none is left or something holds them back, then send what is ready."""
        self._dispatching = True
        turn_end = self._traffic.monotonic() + _TURN_SECONDS if len(self._frames) > 1 else 0.0
        try:
            self._collect_answers()
            while self._frames and not self._is_held_back():
                frame = self._frames.popleft()
                answer = self._handle(frame)
                if type(answer) is Later and not answer.done:
                    answer.request_bytes = len(frame) + SIZE_PREFIX
                else:
                    self._release(len(frame) + SIZE_PREFIX)
                if answer is not None:
                    self._take(answer)
                if self._frames and self._traffic.monotonic() >= turn_end:
                    self._await_turn()
        except Exception as error:  # noqa: BLE001 - one client's request must not touch the others
            self.close(error)
            return
        finally:
            self._dispatching = False
        self._send()
        if not self._traffic.memory.has_room(self._held_bytes):
            self._hold_for_memory()
        else:
            self._set_reading(self._may_read())

    def _await_turn(self) -> None:
        """Go on after everybody else who has something to do now."""
        self._awaits_turn = True
        asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._awaits_turn = False
        self.answered()

    def _hold_for_memory(self) -> None:
        self._set_reading(False)
        self._traffic.memory.when_room(self.answered)

    def _hold(self, count: int) -> None:
        self._held_bytes += count
        self._traffic.memory.take(count)

    def _release(self, count: int) -> None:
        self._held_bytes -= count
        self._traffic.memory.give_back(count)

    def _take(self, answer: Parts | Later) -> None:
        if type(answer) is Later:
            answer.attach(self)
            self._answers.append(answer)
            if answer.done:
                self._collect_answers()
        elif self._answers:
            self._answers.append(answer)
        else:
            self._put_out(answer)

    def _collect_answers(self) -> None:
        answers = self._answers
        while answers:
            answer = answers[0]
            if type(answer) is Later:
                if not answer.done:
                    return
                if answer.error is not None:
                    raise answer.error
                self._release(answer.request_bytes)
                parts = answer.parts
            else:
                parts = answer
            answers.popleft()
            if parts is not None:
                self._put_out(parts)

    def _put_out(self, parts: Parts) -> None:
        for part in parts:
            self._unsent_bytes += len(part)
            if type(part) is LogSlice and part.length <= _COPIED_SLICE_BYTES:
                # One copy and one send are cheaper than a sendfile between two sends.
                content = part.file.pread_cached(part.position, part.length)
                if content is not None and len(content) == part.length:
                    part = content
            if type(part) is not LogSlice:
                self._hold(len(part))
            self._output.append(part)

    def _is_held_back(self) -> bool:
        answers = self._answers
        if self._awaits_turn or self._unsent_bytes > self._limits.max_unsent_bytes:
            return True
        if not answers:
            return False
        last = answers[-1]
        return (type(last) is Later and last.barrier) or len(answers) >= self._limits.max_in_flight_requests

    def _may_read(self) -> bool:
        """While an answer is waited for, one frame is read ahead: so it is noticed when the client goes."""
        return not self._frames and self._unsent_bytes <= self._limits.max_unsent_bytes

    def _set_reading(self, reading: bool) -> None:
        if reading != self._reading and not self.closed:
            self._reading = reading
            self._socket.on_readable(self._on_readable if reading else None)

    def _on_writable(self) -> None:
        self._send()
        if not self.closed and not self._waiting_to_write:
            self._dispatch()

    def _send(self) -> None:
        """Send what the peer takes, and only then give its memory back: that lets others go on, at once."""
        if self.closed or self._reading_cold:
            return
        self._send_output()
        sent_bytes, self._sent_bytes = self._sent_bytes, 0
        if sent_bytes and not self.closed:
            self._release(sent_bytes)

    def _send_output(self) -> None:
        try:
            while self._output:
                part = self._output[0]
                sent = self._send_slice(part) if type(part) is LogSlice else self._send_buffers()
                if sent == 0:
                    # or a writable socket would call for as long as the disk takes
                    self._wait_to_write(False)
                    return
                self._consume(sent)
        except (BlockingIOError, InterruptedError):
            self._wait_to_write(True)
            return
        except ConnectionError:
            self.close()
            return
        except OSError as error:
            self.close(error)
            return
        self._wait_to_write(False)

    def _wait_to_write(self, waiting: bool) -> None:
        if waiting != self._waiting_to_write:
            self._waiting_to_write = waiting
            self._socket.on_writable(self._on_writable if waiting else None)

    def _send_buffers(self) -> int:
        buffers: list[Buffer] = []
        more = False
        for part in self._output:
            if type(part) is LogSlice or len(buffers) == _BUFFERS_PER_SEND:
                more = True
                break
            buffers.append(part)
        if self._head_sent:
            buffers[0] = memoryview(buffers[0])[self._head_sent :]
        return self._socket.sendmsg(buffers, more)

    def _send_slice(self, part: LogSlice) -> int:
        position, length = part.position + self._head_sent, part.length - self._head_sent
        if part.file.is_cached(position, min(length, _COLD_CHUNK_BYTES)):
            sent = self._socket.sendfile(part.file, position, length)
            if sent == 0:
                raise OSError(f"{part} ends before its length")
            return sent
        self._reading_cold = True
        chunk = min(length, _COLD_CHUNK_BYTES)
        self._threads.run("read", lambda: part.file.pread(position, chunk)).add_done_callback(
            self._on_cold_read
        )
        return 0

    def _on_cold_read(self, read: asyncio.Future[bytes]) -> None:
        """Bytes that were not in memory have come from the disk: they take their slice's place in the output."""
        self._reading_cold = False
        if self.closed or read.cancelled():
            return
        if (error := read.exception()) is not None:
            self.close(error if isinstance(error, Exception) else None)
            return
        part = self._output.popleft()
        assert type(part) is LogSlice
        content = read.result()
        if not content:
            self.close(OSError(f"{part} ends before its length"))
            return
        rest = part.after(self._head_sent + len(content))
        if rest.length:
            self._output.appendleft(rest)
        self._output.appendleft(content)
        self._hold(len(content))
        self._head_sent = 0
        self._on_writable()

    def _consume(self, count: int) -> None:
        self.progress += 1
        self._traffic.sent_bytes += count
        self._unsent_bytes -= count
        output = self._output
        while count:
            left = len(output[0]) - self._head_sent
            if count < left:
                self._head_sent += count
                return
            part = output.popleft()
            if type(part) is not LogSlice:
                self._sent_bytes += len(part)
            self._head_sent = 0
            count -= left
