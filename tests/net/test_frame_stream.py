"""A stream of frames, and the connection to a broker on top of it."""

from __future__ import annotations

import asyncio

import pytest
from test_connection import ScriptedSocket, frame

from penstock.errors import ProtocolError
from penstock.net.broker_connection import BrokerConnection
from penstock.net.frame_stream import FrameStream
from penstock.unreachable import ConnectionLost, NotKafka

MAX_FRAME_BYTES = 100


class User:
    """A stream, the frames that it received, and its end."""

    def __init__(self) -> None:
        self.socket = ScriptedSocket()
        self.frames: list[bytes] = []
        self.ends: list[str] = []
        self.stream = FrameStream(self.socket, MAX_FRAME_BYTES, self.on_frame, self.on_lost)

    def on_frame(self, received: memoryview) -> None:
        content = bytes(received)
        self.frames.append(content)
        if content == b"wrong":
            raise ProtocolError("a wrong frame")
        if content == b"close":
            self.stream.close()

    def on_lost(self, error: ConnectionLost) -> None:
        self.ends.append(str(error))

    def receive(self, chunk: bytes) -> None:
        self.socket.incoming.append(chunk)
        assert self.socket.readable is not None
        self.socket.readable()


def test_frames_leave_in_order_when_the_socket_has_room_again() -> None:
    user = User()
    user.socket.room = 6
    for body in (b"one", b"two", b"three"):
        user.stream.send(frame(body))
    assert user.socket.sent == frame(b"one")[:6]
    user.socket.room = 1000
    assert user.socket.writable is not None
    user.socket.writable()
    assert user.socket.sent == frame(b"one") + frame(b"two") + frame(b"three")
    assert user.socket.writable is None


def test_frames_arrive_whole_from_any_chunks() -> None:
    user = User()
    for byte in frame(b"one") + frame(b"two"):
        user.receive(bytes([byte]))
    user.receive(frame(b"three") + frame(b"four"))
    assert user.frames == [b"one", b"two", b"three", b"four"]


def test_readable_socket_without_data_changes_nothing() -> None:
    user = User()
    assert user.socket.readable is not None
    user.socket.readable()
    assert (user.stream.is_open, user.frames, user.ends) == (True, [], [])


def test_stream_ends_once() -> None:
    user = User()
    user.stream.close()
    user.stream.close()
    user.stream.send(frame(b"late"))
    assert user.ends == ["the connection was closed"]
    assert user.socket.closed
    assert not user.socket.sent


@pytest.mark.parametrize(
    ("chunk", "problem"),
    [
        (b"", "the peer closed the connection"),
        (frame(b"wrong") + frame(b"next"), "a wrong frame"),
        (frame(bytes(MAX_FRAME_BYTES + 1)), "the frame has 101 bytes; 1 to 100 are allowed"),
    ],
)
def test_stream_ends_with_the_problem_of_the_received_bytes(chunk: bytes, problem: str) -> None:
    user = User()
    user.receive(chunk)
    assert user.ends == [problem]
    assert b"next" not in user.frames


def test_frames_behind_one_that_closed_the_stream_are_dropped() -> None:
    user = User()
    user.receive(frame(b"close") + frame(b"next"))
    assert user.frames == [b"close"]
    assert user.ends == ["the connection was closed"]


def test_failed_send_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> int:
        raise BrokenPipeError("gone")

    user = User()
    monkeypatch.setattr(user.socket, "sendmsg", gone)
    user.stream.send(frame(b"one"))
    assert user.ends == ["gone"]


def test_pending_requests_fail_when_the_broker_closes_the_connection() -> None:
    async def scenario() -> None:
        socket = ScriptedSocket()
        connection = BrokerConnection(socket, "test")
        answered = connection.exchange(1, frame(b"one"))
        pending = connection.exchange(2, frame(b"two"))
        assert socket.readable is not None
        socket.incoming.extend([frame(b"\0\0\0\1yes"), b""])
        socket.readable()
        socket.readable()
        assert bytes(await answered) == b"\0\0\0\1yes"
        with pytest.raises(ConnectionLost, match="closed"):
            await pending
        with pytest.raises(ConnectionLost, match="closed"):
            await connection.exchange(3, frame(b"three"))
        await connection.until_lost()
        assert connection.has_received

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"),
        (frame(b"\0\0\0\2no"), "out of order"),
    ],
)
def test_foreign_or_unexpected_response_ends_the_connection(sent: bytes, error: str) -> None:
    async def scenario() -> None:
        socket = ScriptedSocket()
        response = BrokerConnection(socket, "test").exchange(1, frame(b"one"))
        assert socket.readable is not None
        socket.incoming.append(sent)
        socket.readable()
        with pytest.raises(ConnectionLost, match=error) as failure:
            await response
        assert isinstance(failure.value, NotKafka) == ("speaks" in error)
        assert socket.closed

    asyncio.run(scenario())
