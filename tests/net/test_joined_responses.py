"""Responses of a connection that are ready at the same time leave with one send."""

from __future__ import annotations

import asyncio

from test_connection import Server

from penstock.net.response import PendingResponse
from support.eventually import eventually_async


def test_responses_of_one_receive_leave_with_one_send() -> None:
    server = Server()
    server.receive(b"a", b"b", b"c")
    assert (bytes(server.socket.sent), server.socket.sends) == (b"abc", 1)


def test_responses_that_become_ready_together_leave_with_one_send() -> None:
    """Resolve three responses in one turn of the loop, as a flush does."""

    async def scenario() -> None:
        server, waiting = (
            Server(),
            {b"a": PendingResponse(), b"b": PendingResponse(), b"c": PendingResponse()},
        )
        server.answers.update(waiting)
        server.receive(*waiting)
        for body, response in waiting.items():
            response.resolve([body])
        await eventually_async(lambda: bytes(server.socket.sent) == b"abc", "three responses")
        assert server.socket.sends == 1
        assert server.memory.used_bytes == 0

    asyncio.run(scenario())


def test_connection_closed_before_its_responses_are_sent_together() -> None:
    async def scenario() -> None:
        server, waiting = Server(), {b"a": PendingResponse(), b"b": PendingResponse()}
        server.answers.update(waiting)
        server.receive(*waiting)
        for body, response in waiting.items():
            response.resolve([body])
        server.connection.close()
        await asyncio.sleep(0)
        assert (server.socket.sends, server.memory.used_bytes) == (0, 0)

    asyncio.run(scenario())


def test_joined_responses_continue_where_the_peer_stopped_reading() -> None:
    server = Server()
    server.socket.room = 4
    server.receive(b"abc", b"def", b"ghi")
    assert bytes(server.socket.sent) == b"abcd"
    assert server.memory.used_bytes == 6
    assert server.connection.owes_reading
    server.socket.room = 100
    assert server.socket.writable is not None
    server.socket.writable()
    assert bytes(server.socket.sent) == b"abcdefghi"
    assert server.memory.used_bytes == 0
