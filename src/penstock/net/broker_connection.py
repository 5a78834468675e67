"""One connection to one broker: requests are pipelined, and responses are matched to them in order.

Followers, the internal client and simulated clients use it. It handles correlation ids; requests and
responses are encoded by `wire`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.errors import ProtocolError
from penstock.net.acting import acting_for, with_actor
from penstock.net.frame_stream import FrameStream
from penstock.net.network import Network, Socket
from penstock.unreachable import ConnectionLost, NotKafka
from penstock.wire.foreign_protocol import PREFIX_BYTES, foreign_protocol
from penstock.wire.messages import decode_response_frame, encode_request_frame

_MAX_FRAME_BYTES = 2**31 - 1


class ResponseReceiver(Protocol):
    """Receiver of one response: a future, or an object that is called in the loop turn in which the response
    arrives.
    """

    def done(self) -> bool: ...

    def set_result(self, frame: memoryview, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class BrokerConnection:
    """One connection to one broker."""

    def __init__(self, socket: Socket, client_id: str) -> None:
        self.has_received = False
        """True if the peer has sent anything."""
        self._client_id = client_id
        self._waiting: deque[tuple[int, ResponseReceiver]] = deque()
        self._silent_since = 0.0
        """Loop time at which the first of the waiting requests was sent or the last response arrived,
        whichever is later.
        """
        self._correlation_id = 0
        self._lost: ConnectionLost | None = None
        self._loss: asyncio.Future[None] | None = None
        self._stream = FrameStream(
            socket, _MAX_FRAME_BYTES, self._on_frame, self._on_lost, check_start=self._check_protocol
        )

    @classmethod
    async def connect(
        cls, network: Network, host: str, port: int, client_id: str = "penstock"
    ) -> BrokerConnection:
        return cls(await network.connect(host, port), client_id)

    @property
    def client_id(self) -> str:
        """Client id for a request of the running task, which names the client that the task serves."""
        return with_actor(self._client_id, acting_for.get())

    @property
    def own_client_id(self) -> str:
        """Client id for a request that serves several clients, or none."""
        return self._client_id

    @property
    def binding(self) -> bytes:
        """Fingerprint of the broker's certificate; empty without TLS."""
        return self._stream.binding

    def detach(self) -> Socket:
        """Give the socket to the caller. No request may be waiting."""
        assert not self._waiting, "a request is waiting"
        return self._stream.detach()

    @property
    def is_connected(self) -> bool:
        return self._lost is None

    @property
    def silent_seconds(self) -> float:
        """Seconds without a response while a request is waiting for one. Abandoned requests count too."""
        return asyncio.get_running_loop().time() - self._silent_since if self._waiting else 0.0

    def next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    async def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Send one request and wait for its decoded response."""
        correlation_id = self.next_correlation_id()
        frame = encode_request_frame(api_key, version, correlation_id, self.client_id, fields)
        return decode_response_frame(api_key, version, await self.exchange(correlation_id, frame))

    def exchange(self, correlation_id: int, frame: bytes) -> asyncio.Future[memoryview]:
        """Send a request frame. The future gets the frame of the response, without its size."""
        response: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.submit(correlation_id, frame, response)
        return response

    def submit(self, correlation_id: int, frame: bytes, receiver: ResponseReceiver) -> None:
        """Send a request frame. The receiver is called in the loop turn in which the response arrives."""
        if self._lost is not None:
            receiver.set_exception(self._lost)
            return
        if not self._waiting:
            self._silent_since = asyncio.get_running_loop().time()
        self._waiting.append((correlation_id, receiver))
        self._stream.send(frame)

    def send(self, frame: bytes) -> None:
        """Send a frame that has no response (Produce with acks=0)."""
        self._stream.send(frame)

    async def until_lost(self) -> None:
        """Wait until either side has closed the connection."""
        if self._lost is None:
            self._loss = self._loss or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._loss)

    def close(self) -> None:
        self._stream.close()

    def _check_protocol(self, received: memoryview) -> None:
        self.has_received = True
        problem = foreign_protocol(bytes(received[:PREFIX_BYTES]))
        if problem is not None:
            raise NotKafka(problem)

    def _on_frame(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("the broker sent a response without a request")
        correlation_id, receiver = self._waiting[0]
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise ProtocolError(f"the response to request {correlation_id} came out of order")
        self._waiting.popleft()
        if self._waiting:
            self._silent_since = asyncio.get_running_loop().time()
        if not receiver.done():
            receiver.set_result(frame)

    def _on_lost(self, error: ConnectionLost) -> None:
        self._lost = error
        if self._loss is not None:
            self._loss.set_result(None)
        while self._waiting:
            _, receiver = self._waiting.popleft()
            if not receiver.done():
                receiver.set_exception(error)
