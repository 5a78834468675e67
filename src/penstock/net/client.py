"""The internal client: requests to a broker over one connection, pipelined, answers matched in order.

Followers, the gateway, Spark tasks and simulated clients all speak to brokers through it. It knows frames and
correlation ids; what is in them belongs to `wire`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.errors import ProtocolError
from penstock.net.network import Network, Socket
from penstock.wire.framing import FrameReader
from penstock.wire.messages import decode_response_frame, encode_request_frame

_MAX_FRAME_BYTES = 2**31 - 1


class ConnectionLost(ConnectionError):
    """The broker is gone; a request that was on its way may or may not have been served."""


class Asker(Protocol):
    """Whoever waits for an answer: a future, or what is to be called in the turn the answer comes in."""

    def done(self) -> bool: ...

    def set_result(self, frame: memoryview, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Client:
    """One connection to one broker."""

    def __init__(self, socket: Socket, client_id: str) -> None:
        self._socket = socket
        self._client_id = client_id
        self._reader = FrameReader(_MAX_FRAME_BYTES)
        self._waiting: deque[tuple[int, Asker]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._correlation_id = 0
        self._lost: ConnectionLost | None = None
        self._loss: asyncio.Future[None] | None = None
        socket.on_readable(self._on_readable)

    @classmethod
    async def connect(cls, network: Network, host: str, port: int, client_id: str = "penstock") -> Client:
        return cls(await network.connect(host, port), client_id)

    @property
    def client_id(self) -> str:
        return self._client_id

    @property
    def is_connected(self) -> bool:
        return self._lost is None

    def next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    async def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Send one request and wait for its decoded response."""
        correlation_id = self.next_correlation_id()
        frame = encode_request_frame(api_key, version, correlation_id, self._client_id, fields)
        return decode_response_frame(api_key, version, await self.exchange(correlation_id, frame))

    def exchange(self, correlation_id: int, frame: bytes) -> asyncio.Future[memoryview]:
        """Send a whole frame; the future gives the frame that answers it (without its size)."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.ask(correlation_id, frame, answer)
        return answer

    def ask(self, correlation_id: int, frame: bytes, asker: Asker) -> None:
        """As `exchange`, without a turn of the loop between the answer and who wants it."""
        if self._lost is not None:
            asker.set_exception(self._lost)
            return
        self._waiting.append((correlation_id, asker))
        self.send(frame)

    def send(self, frame: bytes) -> None:
        """Send a whole frame that gets no answer (Produce with acks=0)."""
        idle = not self._unsent
        self._unsent.append(memoryview(frame))
        if idle:
            self._flush()

    async def until_lost(self) -> None:
        """Until the connection has ended, whoever ended it."""
        if self._lost is None:
            self._loss = self._loss or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._loss)

    def close(self) -> None:
        self._fail(ConnectionLost("the connection was closed"))

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.sendmsg((self._unsent[0],), False)
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            self._socket.on_writable(self._flush)
            return
        except OSError as error:
            self._fail(ConnectionLost(str(error)))
            return
        self._socket.on_writable(None)

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._reader.buffer())
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            for frame in self._reader.received(count):
                self._on_frame(frame)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ProtocolError) as error:
            self._fail(ConnectionLost(str(error)))

    def _on_frame(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("an answer that nothing asked for")
        correlation_id, answer = self._waiting.popleft()
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise ProtocolError("answers out of order")
        if not answer.done():
            answer.set_result(frame)

    def _fail(self, error: ConnectionLost) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._socket.close()
        self._unsent.clear()
        if self._loss is not None:
            self._loss.set_result(None)
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(error)
