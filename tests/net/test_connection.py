from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from typing_extensions import Buffer

from penstock.errors import ProtocolError
from penstock.net.connection import Connection, ConnectionLimits, Traffic
from penstock.net.request_memory import RequestMemory
from penstock.net.response import Answer, PendingResponse
from penstock.records.log_slice import SliceFile
from penstock.threads import ThreadPools
from support.eventually import eventually_async


class ScriptedSocket:
    """A socket whose input comes from the test and whose output has as much room as the test allows."""

    peer = "127.0.0.1:5"

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()
        self.sent = bytearray()
        self.room = 1 << 30
        self.readable: Callable[[], None] | None = None
        self.writable: Callable[[], None] | None = None
        self.sends, self.closed = 0, False

    def recv_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        chunk = self.incoming.popleft()
        count = min(len(chunk), len(buffer))
        buffer[:count] = chunk[:count]
        if count < len(chunk):
            self.incoming.appendleft(chunk[count:])
        return count

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        data = b"".join(bytes(each) for each in buffers)[: self.room]
        if not data:
            raise BlockingIOError
        self.room -= len(data)
        self.sent += data
        self.sends += 1
        return len(data)

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        return self.sendmsg((file.pread(position, length),), False)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self.readable = callback

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self.writable = callback

    def close(self) -> None:
        self.closed = True
        self.readable = self.writable = None


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class SteppingClock:
    """A clock that advances by a step at every read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


class Server:
    """A connection with a scripted socket; responds to each frame as the test says, by default with an echo."""

    def __init__(self, max_in_flight: int = 100, max_unsent: int = 1_000, memory: int = 1 << 20) -> None:
        self.socket = ScriptedSocket()
        self.handled: list[bytes] = []
        self.answers: dict[bytes, Answer | Exception] = {}
        self.errors: list[Exception | None] = []
        self.memory = RequestMemory(memory)
        self.clock = SteppingClock()
        self.connection = Connection(
            self.socket,
            self.handle,
            lambda _, error: self.errors.append(error),
            limits=ConnectionLimits(1_000, max_in_flight, max_unsent),
            threads=ThreadPools(),
            traffic=Traffic(self.memory, self.clock),
        )

    def handle(self, request: memoryview) -> Answer:
        body = bytes(request)
        self.handled.append(body)
        answer = self.answers.get(body, [body])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def receive(self, *bodies: bytes) -> None:
        self.socket.incoming.append(b"".join(frame(body) for body in bodies))
        while self.socket.readable and self.socket.incoming:
            self.socket.readable()


def test_responses_leave_in_the_order_of_requests() -> None:
    server, first = Server(), PendingResponse()
    server.answers[b"a"] = first
    server.receive(b"a", b"b", b"c")
    assert server.handled == [b"a", b"b", b"c"]
    assert bytes(server.socket.sent) == b""
    first.resolve([b"A"])
    assert bytes(server.socket.sent) == b"Abc"


def test_response_completed_by_later_request_leaves_at_once() -> None:
    """Fail as when an append fails a log, with the earlier requests that wait for its fsync."""
    server, first = Server(), PendingResponse()
    server.answers[b"a"] = first
    handle = server.connection._handle

    def settling(request: memoryview) -> Answer:
        if bytes(request) == b"b":
            first.resolve([b"1"])
        return handle(request)

    server.connection._handle = settling
    server.receive(b"a")
    server.receive(b"b")
    assert bytes(server.socket.sent) == b"1b"


def test_barrier_holds_back_the_next_request() -> None:
    server, first = Server(), PendingResponse(barrier=True)
    server.answers[b"a"] = first
    server.receive(b"a", b"b")
    assert server.handled == [b"a"]
    assert server.socket.readable is None
    first.resolve([b"A"])
    assert server.handled == [b"a", b"b"]
    assert bytes(server.socket.sent) == b"Ab"
    assert server.socket.readable is not None


def test_lifted_barrier_admits_request_but_keeps_response_order() -> None:
    server, first = Server(), PendingResponse(barrier=True)
    server.answers[b"a"] = first
    server.receive(b"a", b"b")
    first.lift_barrier()
    assert server.handled == [b"a", b"b"]
    assert bytes(server.socket.sent) == b""
    first.resolve([b"A"])
    assert bytes(server.socket.sent) == b"Ab"


def test_request_without_response_does_not_block_others() -> None:
    server = Server()
    server.answers[b"a"] = None
    server.receive(b"a", b"b")
    assert bytes(server.socket.sent) == b"b"


def test_reading_stops_for_client_that_does_not_read() -> None:
    server = Server(max_unsent=4)
    server.socket.room = 0
    server.receive(b"12345", b"67890")
    assert server.handled == [b"12345"]
    assert server.socket.readable is None
    server.socket.room = 100
    assert server.socket.writable is not None
    server.socket.writable()
    assert bytes(server.socket.sent) == b"1234567890"
    assert server.socket.readable is not None


def test_pending_requests_are_bounded() -> None:
    server = Server(max_in_flight=2)
    server.answers = {b"a": PendingResponse(), b"b": PendingResponse(), b"c": PendingResponse()}
    server.receive(b"a", b"b", b"c")
    assert server.handled == [b"a", b"b"]
    assert server.socket.readable is None


def test_request_memory_is_released_with_the_response() -> None:
    server, later = Server(), PendingResponse()
    server.answers[b"abcd"] = later
    server.receive(b"abcd", b"ef")
    assert server.memory.used_bytes == 8
    later.resolve([b"x"])
    assert server.memory.used_bytes == 0


def test_request_memory_is_released_with_the_connection() -> None:
    server = Server()
    server.answers[b"abcd"] = PendingResponse()
    server.receive(b"abcd")
    server.socket.incoming.append(b"\x00\x00\x00\x09half")
    assert server.socket.readable is not None
    server.socket.readable()
    assert server.memory.used_bytes == 16
    server.connection.close()
    assert server.memory.used_bytes == 0
    assert server.memory.connections == 0


def test_partial_send_continues_where_it_stopped() -> None:
    server = Server(max_unsent=100)
    server.socket.room = 3
    server.receive(b"abcde", b"fg")
    assert bytes(server.socket.sent) == b"abc"
    server.socket.room = 100
    assert server.socket.writable is not None
    server.socket.writable()
    assert bytes(server.socket.sent) == b"abcdefg"
    assert server.socket.writable is None


@pytest.mark.parametrize("problem", [ProtocolError("nonsense"), ValueError("a bug")])
def test_handler_exception_closes_only_its_connection(problem: Exception) -> None:
    server = Server()
    server.answers[b"a"] = problem
    server.receive(b"a", b"b")
    assert server.socket.closed
    assert server.handled == [b"a"]
    assert server.errors == [problem]


def test_failed_later_closes_the_connection() -> None:
    server, later, problem = Server(), PendingResponse(), ValueError("a bug")
    server.answers[b"a"] = later
    server.receive(b"a")
    later.fail(problem)
    assert server.socket.closed
    assert server.errors == [problem]


def test_response_after_close_is_dropped() -> None:
    server, later = Server(), PendingResponse()
    server.answers[b"a"] = later
    server.receive(b"a")
    server.connection.close()
    later.resolve([b"A"])
    assert bytes(server.socket.sent) == b""


def test_frame_over_the_limit_closes_the_connection_unread() -> None:
    server = Server()
    server.socket.incoming.append((1_001).to_bytes(4, "big"))
    assert server.socket.readable is not None
    server.socket.readable()
    assert server.socket.closed
    assert isinstance(server.errors[0], ProtocolError)


def test_unsent_responses_count_as_memory() -> None:
    server = Server(max_unsent=1_000)
    server.socket.room = 0
    server.receive(b"abcd")
    assert server.memory.used_bytes == 4
    server.socket.room = 100
    assert server.socket.writable is not None
    server.socket.writable()
    assert server.memory.used_bytes == 0


def test_reading_stops_when_unsent_responses_fill_memory() -> None:
    server = Server(max_unsent=1_000, memory=32)
    server.socket.room = 0
    server.receive(b"0123456789")
    assert server.socket.readable is not None
    server.receive(b"0123456789012345678901")
    assert server.memory.used_bytes == 32
    assert server.socket.readable is None
    server.socket.room = 100
    assert server.socket.writable is not None
    server.socket.writable()
    assert server.memory.used_bytes == 0
    assert server.socket.readable is not None


def test_work_on_a_response_learns_of_disconnect() -> None:
    server, waiting, finished, told = Server(), PendingResponse(), PendingResponse(), []
    waiting.when_abandoned(lambda: told.append("waiting"))
    finished.when_abandoned(lambda: told.append("finished"))
    server.answers = {b"a": waiting, b"b": finished}
    server.receive(b"a", b"b")
    finished.resolve([b"B"])
    server.connection.close()
    assert told == ["waiting"]


async def _until_handled(server: Server, count: int) -> None:
    await eventually_async(lambda: len(server.handled) >= count, poll_s=0)


def test_many_requests_of_one_connection_do_not_starve_others() -> None:
    async def run() -> None:
        server = Server()
        server.clock.step = 0.0015
        server.receive(*(b"%d" % number for number in range(10)))
        assert 0 < len(server.handled) < 10
        assert server.socket.readable is None
        await _until_handled(server, 10)
        assert bytes(server.socket.sent) == b"0123456789"
        assert server.socket.readable is not None

    asyncio.run(run())


def test_disconnect_during_response_is_not_an_error() -> None:
    server = Server()

    def gone(buffers: Sequence[Buffer], more: bool) -> int:
        raise BrokenPipeError

    server.socket.sendmsg = gone  # type: ignore[method-assign]
    server.receive(b"a")
    assert server.errors == [None]


def test_disconnect_during_a_wait_is_noticed() -> None:
    server, waiting, told = Server(), PendingResponse(barrier=True), []
    waiting.when_abandoned(lambda: told.append("gone"))
    server.answers[b"a"] = waiting
    server.receive(b"a")
    assert server.socket.readable is not None
    server.socket.incoming.append(b"")
    server.socket.readable()
    assert told == ["gone"]
    assert server.socket.closed


def test_one_frame_is_read_ahead_of_a_response() -> None:
    server = Server()
    server.answers[b"a"] = PendingResponse(barrier=True)
    server.receive(b"a")
    server.receive(b"b")
    assert server.handled == [b"a"]
    assert server.socket.readable is None


def test_connection_above_fair_share_is_a_hog() -> None:
    server = Server(memory=32)
    server.answers[b"0123456789012345678901234567"] = PendingResponse()
    server.receive(b"a")
    assert not server.connection.hogs_memory
    server.receive(b"0123456789012345678901234567")
    assert server.connection.hogs_memory


def test_requests_received_before_close_are_carried_out() -> None:
    server, joining = Server(), PendingResponse(barrier=True)
    server.answers[b"join"] = joining
    server.receive(b"join", b"leave")
    assert server.handled == [b"join"]
    server.connection._end()
    assert server.handled == [b"join"]
    joining.resolve([b"J"])
    assert server.handled == [b"join", b"leave"]
    assert server.socket.closed
    assert not server.socket.sent, "nobody is there to read the answers"
    assert server.memory.used_bytes == 0


def test_long_poll_does_not_block_requests_of_disconnected_client() -> None:
    server, polling, told = Server(), PendingResponse(barrier=True), []
    polling.when_abandoned(lambda: told.append("gone"))
    server.answers[b"poll"] = polling
    server.receive(b"poll", b"leave")
    server.connection._end()
    assert told == ["gone"]
    assert server.handled == [b"poll", b"leave"]
    assert server.socket.closed


def test_requests_behind_unsendable_response_are_carried_out() -> None:
    async def run() -> None:
        server = Server()
        server.clock.step = 0.0015

        def gone(buffers: Sequence[Buffer], more: bool) -> int:
            raise BrokenPipeError

        server.socket.sendmsg = gone  # type: ignore[method-assign]
        server.receive(*(b"%d" % number for number in range(10)))
        await _until_handled(server, 10)
        assert server.socket.closed

    asyncio.run(run())
