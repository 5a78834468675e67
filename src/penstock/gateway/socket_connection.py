"""One WebSocket connection: uvicorn's, watched like those of requests, so that one that is not read from goes."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class SocketConnection(WebSocketsSansIOProtocol):
    waiting_to_send: int = 0
    """Bytes that the peer had not taken when that was last looked at."""
    stalled_since: float | None = None

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled_since = None
