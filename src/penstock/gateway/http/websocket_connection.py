"""One WebSocket connection: uvicorn's class, extended by the limits of HTTP connections.

Received bytes are parsed one piece per turn of the event loop, and only while the application reads the
messages, so a client that floods the gateway with frames does not delay other clients. The number of control
frames and fragments per second is limited; a client that exceeds the limit is disconnected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.gateway.http.exchange import TRANSPORT

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent
    from websockets.frames import Frame

    from penstock.gateway.http.connection_table import ConnectionTable

MAX_CONTROL_FRAMES = 20
"""Maximum number of pings, pongs and message fragments that a client may send in a second."""
PIECE_BYTES = 512
MAX_PIECE_BYTES = 64 * 1024
_WINDOW_SECONDS = 1.0
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013


class WebSocketConnection(WebSocketsSansIOProtocol):
    table: ConnectionTable | None = None
    waiting_to_send: int = 0
    """Number of bytes in the send buffer at the last sweep of the server."""
    stalled_since: float | None = None

    is_idle = False
    is_waiting = True
    """Always true: a WebSocket waits for messages or for its client, so it may be evicted."""

    _is_over = False
    _is_feeding = False
    """True if the parsing of the next piece is scheduled."""
    _piece_bytes = PIECE_BYTES
    _frames = 0
    _control_frames = 0
    _window_end = 0.0
    _unparsed: bytearray | None = None

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._unparsed = None
        if self.table is not None:
            self.table.remove(self)
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close the connection to make room for another."""
        self._close(
            _TRY_AGAIN_LATER,
            "closed because of too many connections; connect again later",
        )

    def _close(self, code: int, reason: str) -> None:
        self._is_over = True
        self._unparsed = None
        self.stop_keepalive()
        if self.transport.is_closing():
            return
        if self.close_sent or not self.handshake_complete or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()

    async def run_asgi(self) -> None:
        self.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
        await super().run_asgi()

    # --- parsing in pieces

    def data_received(self, data: bytes) -> None:
        if self._is_over or self.transport.is_closing():
            return
        if not self.handshake_initiated or (self._unparsed is None and len(data) <= PIECE_BYTES):
            super().data_received(data)
            return
        if self._unparsed is None:
            self._unparsed = bytearray()
        self._unparsed += data
        self.transport.pause_reading()
        self._feed_soon()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message. As in uvicorn, reading resumes when the application has taken all messages."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    def _go_on(self) -> None:
        if self._unparsed is not None:
            self._feed_soon()
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def _feed_soon(self) -> None:
        if not self._is_feeding:
            self._is_feeding = True
            self.loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._is_feeding = False
        if self._unparsed is None or self.read_paused or self.transport.is_closing():
            return
        piece = bytes(self._unparsed[: self._piece_bytes])
        del self._unparsed[: self._piece_bytes]
        if not self._unparsed:
            self._unparsed = None
        before = self._frames
        super().data_received(piece)
        # While no frame is complete, the size of the pieces doubles: a large message is being received.
        self._piece_bytes = (
            min(2 * self._piece_bytes, MAX_PIECE_BYTES) if self._frames == before else PIECE_BYTES
        )
        if not self._is_over and not self.read_paused:
            self._go_on()

    # --- frames

    def send_receive_event_to_app(self) -> None:
        self._frames += 1
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        if self._counts():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._counts():
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        if event.fin or self._counts():
            super().handle_cont(event)

    def _counts(self) -> bool:
        """Count a control frame or a fragment. If there are too many, close the connection and return False."""
        if self._is_over:
            return False
        self._frames += 1
        now = self.loop.time()
        if now >= self._window_end:
            self._control_frames, self._window_end = 0, now + _WINDOW_SECONDS
        self._control_frames += 1
        if self._control_frames <= MAX_CONTROL_FRAMES:
            return True
        self._close(_POLICY_VIOLATION, f"more than {MAX_CONTROL_FRAMES} control frames in a second")
        return False
