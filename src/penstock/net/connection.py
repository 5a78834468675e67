"""A client's connection on the server's side: frames in, responses out in the order of the requests.

Reading stops while too much of this client is pending (requests without a response, unsent bytes, or a
request that blocks the next one), so a client that does not read its responses harms only itself. Requests
that were received before the client closed the connection are carried out and their responses dropped. For
example, a consumer that sends LeaveGroup after another request and closes the connection has left its group.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.errors import ProtocolError
from penstock.net.network import Socket
from penstock.net.outbox import Outbox
from penstock.net.request_memory import RequestMemory
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.threads import Threads
from penstock.wire.framing import SIZE_PREFIX, FrameReader

_TURN_SECONDS = 0.002
"""Seconds for which the requests of one connection are served before other connections get their turn."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_frame_bytes: int
    max_in_flight_requests: int
    max_unsent_bytes: int


class Traffic:
    """State that all connections of a broker share: byte counters, memory held by requests, and the clock."""

    __slots__ = ("memory", "monotonic", "received_bytes", "sent_bytes")

    def __init__(self, memory: RequestMemory, clock: Clock) -> None:
        self.received_bytes = self.sent_bytes = 0
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
        """Counter that increases when bytes are received or sent. If it has not changed since an earlier
        look, the connection is idle or stuck.
        """
        self.received_bytes = 0
        self.sent_bytes = 0
        self._socket, self._handle, self._on_close = socket, handle, on_close
        self._limits = limits
        self._traffic = traffic
        self._outbox = Outbox(socket, threads, self, traffic.monotonic)
        self._reader = FrameReader(limits.max_frame_bytes)
        self._frames: deque[memoryview] = deque()
        self._responses: deque[Parts | PendingResponse] = deque()
        self._request_bytes = 0
        """Bytes of received requests whose response is not ready."""
        self._held_bytes = 0
        """Memory that this client holds, in bytes, as reported to `RequestMemory`: requests until their
        response is ready, responses until they are sent.
        """
        self._dispatching = self._awaits_turn = self._is_muted = False
        self._is_scheduled = False
        """True if responses that become ready in this turn of the loop will be sent together at its end."""
        self._reading = True
        self._has_ended = False
        """True if the client has disconnected and only the requests that it sent before remain."""
        traffic.memory.connections += 1
        socket.on_readable(self._on_readable)

    @property
    def is_waiting(self) -> bool:
        """True if the client waits for a response that is being prepared, for example by a long poll or an fsync."""
        return bool(self._responses) and not self._outbox

    @property
    def owes_reading(self) -> bool:
        """True if a response is ready that the client has not read."""
        return bool(self._outbox)

    @property
    def owes_sending(self) -> bool:
        """True if a request was received in part."""
        return self._reader.is_inside_frame

    @property
    def hogs_memory(self) -> bool:
        """True if the memory for requests is exhausted and the connection holds more than its fair share."""
        return not self._traffic.memory.has_room(self._held_bytes)

    def serve_with(self, handle: Callable[[memoryview], Answer], max_frame_bytes: int) -> None:
        """Pass later frames to another handler, with another maximum size of frames."""
        self._handle = handle
        self._reader.max_frame_bytes = max_frame_bytes

    def close(self, error: Exception | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self._socket.close()
        self._frames.clear()
        for response in self._responses:
            if isinstance(response, PendingResponse):
                response.abandon()
        self._responses.clear()
        self._outbox.close()
        self._reader.release()
        memory, held_bytes = self._traffic.memory, self._held_bytes
        memory.connections -= 1
        memory.forget(self._continue)
        self._held_bytes = 0
        memory.give_back(held_bytes)
        self._on_close(self, error)

    def on_response(self) -> None:
        """Continue after a PendingResponse of this connection has changed.

        One fsync, or one fetch of a follower, can make many responses ready. They are sent with one call.
        """
        if self._dispatching or self._is_scheduled:
            return
        responses = self._responses
        if (
            len(responses) > 1
            and isinstance(following := responses[1], PendingResponse)
            and not following.is_done
        ):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._on_schedule)
        else:
            self._continue()

    def _on_schedule(self) -> None:
        self._is_scheduled = False
        self._continue()

    def _continue(self) -> None:
        if not self.closed and not self._dispatching:
            self._dispatch()

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._reader.buffer())
        except (BlockingIOError, InterruptedError):
            self._reader.release()
            return
        except OSError:
            self._end()
            return
        if count == 0:
            self._end()
            return
        self.progress += 1
        self.received_bytes += count
        self._traffic.received_bytes += count
        self._request_bytes += count
        try:
            frames = self._reader.received(count)
        except ProtocolError as error:
            self.close(error)
            return
        if frames:
            self._frames.extend(frames)
            self._dispatch()
        else:
            self._account()
            if not self._traffic.memory.has_room(self._held_bytes):
                self._hold_for_memory()

    def _end(self, error: Exception | None = None) -> None:
        """Close the connection when the received requests are carried out, because the client has disconnected."""
        if not self._frames:
            self.close(error)
            return
        self._has_ended = True
        self._set_reading(False)
        self._outbox.close()
        for response in self._responses:
            if isinstance(response, PendingResponse) and response.can_be_abandoned:
                response.abandon()
        self._continue()

    def _dispatch(self) -> None:
        """Serve frames in order until none is left or one has to wait. Then send the responses that are ready."""
        self._dispatching = True
        frames = self._frames
        try:
            if self._responses:
                self._collect_responses()
            if frames:
                self._serve(frames)
        except Exception as error:  # noqa: BLE001 - a failed request closes its connection alone
            self.close(error)
            return
        finally:
            self._dispatching = False
        if self._has_ended:
            if not frames:
                self.close()
            self._account()
            return
        self._send()
        if not self._traffic.memory.has_room(self._held_bytes):
            self._hold_for_memory()
        elif frames or self._outbox.unsent_bytes or not self._reading:
            self._set_reading(self._may_read())

    def _serve(self, frames: deque[memoryview]) -> None:
        """Serve frames in order until none is left, one has to wait, or the turn of this connection is over."""
        responses, outbox, monotonic = self._responses, self._outbox, self._traffic.monotonic
        max_unsent_bytes = self._limits.max_unsent_bytes
        turn_end = monotonic() + _TURN_SECONDS if len(frames) > 1 else 0.0
        while frames and not self._awaits_turn:
            if (responses or outbox.unsent_bytes > max_unsent_bytes) and self._is_held_back():
                return
            frame = frames.popleft()
            response = self._handle(frame)
            if isinstance(response, PendingResponse) and not response.is_done:
                response.request_bytes = len(frame) + SIZE_PREFIX
            else:
                self._request_bytes -= len(frame) + SIZE_PREFIX
            if responses:
                self._collect_responses()  # The handler may have completed earlier responses.
            if response is None:
                pass
            elif responses or self._has_ended or isinstance(response, PendingResponse):
                self._take(response)
            else:
                outbox.put(response)
            if frames and monotonic() >= turn_end:
                self._await_turn()

    def _await_turn(self) -> None:
        """Pause, and continue after all other connections that have work now."""
        self._awaits_turn = True
        asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._awaits_turn = self._is_muted
        self._continue()

    def mute(self, seconds: float) -> None:
        """Serve no request for some seconds. Responses are still sent, and at most one more request is received."""
        if not self.closed and not self._is_muted:
            self._is_muted = self._awaits_turn = True
            asyncio.get_running_loop().call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._is_muted = self._awaits_turn = False
        self._continue()

    def _hold_for_memory(self) -> None:
        self._set_reading(False)
        self._traffic.memory.when_room(self._continue)

    def _account(self) -> None:
        """Report the memory of this client once for all requests of a turn. Other connections may continue at once."""
        held_bytes = self._request_bytes + self._outbox.memory_bytes
        more = held_bytes - self._held_bytes
        if more and not self.closed:
            self._held_bytes = held_bytes
            if more > 0:
                self._traffic.memory.take(more)
            else:
                self._traffic.memory.give_back(-more)

    def _take(self, response: Parts | PendingResponse) -> None:
        if isinstance(response, PendingResponse):
            response.attach(self)
            self._responses.append(response)
            if response.is_done:
                self._collect_responses()
        elif self._responses:
            self._responses.append(response)
        else:
            self._put(response)

    def _collect_responses(self) -> None:
        responses = self._responses
        while responses:
            response = responses[0]
            if isinstance(response, PendingResponse):
                if not response.is_done:
                    return
                if response.error is not None:
                    raise response.error
                self._request_bytes -= response.request_bytes
                parts = response.parts
            else:
                parts = response
            responses.popleft()
            if parts is not None:
                self._put(parts)

    def _put(self, parts: Parts) -> None:
        if not self._has_ended:
            self._outbox.put(parts)

    def _is_held_back(self) -> bool:
        responses = self._responses
        if self._outbox.unsent_bytes > self._limits.max_unsent_bytes and not self._has_ended:
            return True
        if not responses:
            return False
        last = responses[-1]
        is_barrier = isinstance(last, PendingResponse) and last.barrier
        return is_barrier or len(responses) >= self._limits.max_in_flight_requests

    def _may_read(self) -> bool:
        """True if the next frame may be read. One frame is read ahead while a response is pending, so that a
        disconnect is noticed.
        """
        return not self._frames and self._outbox.unsent_bytes <= self._limits.max_unsent_bytes

    def _set_reading(self, reading: bool) -> None:
        if reading != self._reading and not self.closed:
            self._reading = reading
            self._socket.on_readable(self._on_readable if reading else None)

    def _send(self) -> None:
        self._outbox.send()
        self._account()

    # --- called by the outbox

    def on_sent(self, count: int) -> None:
        self.progress += 1
        self.sent_bytes += count
        self._traffic.sent_bytes += count

    def on_sendable(self) -> None:
        self._send()
        if not self.closed and not self._outbox.is_blocked:
            self._dispatch()

    def on_broken(self, error: Exception | None) -> None:
        self._end(error)
