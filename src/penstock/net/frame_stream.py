"""Stream of frames over a socket, in both directions and in order.

Frames are sent with their size and delivered without it. The user of the stream interprets their content.
Loop thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.errors import ProtocolError
from penstock.net.network import Socket
from penstock.unreachable import ConnectionLost
from penstock.wire.framing import FrameReader


class FrameStream:
    def __init__(
        self,
        socket: Socket,
        max_frame_bytes: int,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[ConnectionLost], None],
        check_start: Callable[[memoryview], None] | None = None,
    ) -> None:
        """`check_start` gets the first bytes of the peer. It and `on_frame` may raise ConnectionLost or
        ProtocolError, which closes the stream. `on_lost` is called once, when either side has ended the
        stream.
        """
        self.is_open = True
        self._socket = socket
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._check_start = check_start
        self._reader = FrameReader(max_frame_bytes)
        self._unsent: deque[memoryview] = deque()
        socket.on_readable(self._on_readable)

    def send(self, frame: bytes) -> None:
        """Send a frame after all earlier frames. A closed stream drops it."""
        if self._unsent:
            self._unsent.append(memoryview(frame))
        elif self.is_open:
            try:
                sent = self._socket.sendmsg((frame,), False)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._end(ConnectionLost(str(error)))
                return
            if sent < len(frame):
                self._unsent.append(memoryview(frame)[sent:])
                self._flush()

    @property
    def binding(self) -> bytes:
        """Fingerprint of the peer's certificate; empty without TLS."""
        return getattr(self._socket, "binding", b"")

    def detach(self) -> Socket:
        """Give the socket to the caller, between two frames. The stream must not be used afterwards."""
        assert not self._unsent, "a frame is under way"
        self._socket.on_readable(None)
        return self._socket

    def close(self) -> None:
        """End the stream. Frames that the socket has not accepted are lost."""
        self._end(ConnectionLost("the connection was closed"))

    def _flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.sendmsg((unsent[0],), False)
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            self._socket.on_writable(self._flush)
        except OSError as error:
            self._end(ConnectionLost(str(error)))
        else:
            self._socket.on_writable(None)

    def _on_readable(self) -> None:
        try:
            buffer = self._reader.buffer()
            count = self._socket.recv_into(buffer)
            if count == 0:
                raise ConnectionLost("the peer closed the connection")
            if self._check_start is not None:
                check, self._check_start = self._check_start, None
                check(buffer[:count])
            for frame in self._reader.received(count):
                if self.is_open:
                    self._on_frame(frame)
        except (BlockingIOError, InterruptedError):
            self._reader.release()
        except ConnectionLost as error:
            self._end(error)
        except (OSError, ProtocolError) as error:
            self._end(ConnectionLost(str(error)))

    def _end(self, error: ConnectionLost) -> None:
        if self.is_open:
            self.is_open = False
            self._socket.close()
            self._unsent.clear()
            self._reader.release()
            self._on_lost(error)
