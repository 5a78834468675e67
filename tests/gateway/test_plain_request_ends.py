"""Requests without a task end as others do: by a response, a disconnect, a stop or an eviction."""

from __future__ import annotations

import asyncio
from typing import Any

from plain_stage import HOST, Cluster, Side, Wire, request

from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.reply import Reply


def hold(side: Side) -> list[Reply[Any]]:
    """Let receives wait, and return their replies."""
    replies: list[Reply[Any]] = []

    def begin_receive(*arguments: Any) -> Cluster:
        replies.append(arguments[-1])
        return side.cluster  # type: ignore[no-any-return]

    side.cluster.begin_receive = begin_receive
    return replies


def connect(side: Side) -> tuple[HttpConnection, Wire]:
    connection = side.server._make_protocol()
    assert isinstance(connection, HttpConnection)
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


RECEIVE = request("GET", "/receive?user_id=a&wait=5", b"", headers=[HOST])


async def test_client_that_leaves_gives_up_a_request_without_a_task() -> None:
    side = Side(has_plain=True)
    [replies, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE)
    assert side.application.limits.open_requests == 1
    assert connection.is_waiting
    connection.connection_lost(None)
    assert side.cluster.gave_up == 1
    assert side.application.limits.open_requests == 0
    replies[0].set_result([])
    assert wire.written == b""
    assert dict(side.metrics.http_answers.counts) == {"499": 1}


async def test_stop_ends_a_long_poll_without_a_task() -> None:
    side = Side(has_plain=True)
    [_, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE)
    side.application.stop()
    await side.application.settle(10)
    assert wire.written.startswith(b"HTTP/1.1 503 ")
    assert b"connection: close" in wire.written
    assert wire.is_closed
    assert side.cluster.gave_up == 1


async def test_evicted_long_poll_without_a_task_gets_503() -> None:
    side = Side(has_plain=True)
    [_, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE)
    connection.evict()
    assert wire.written.startswith(b"HTTP/1.1 503 ")
    assert wire.is_closed


async def test_settle_waits_for_a_request_without_a_task() -> None:
    side = Side(has_plain=True)
    [replies, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE)
    settling = asyncio.create_task(side.application.settle(60))
    await asyncio.sleep(0)
    assert not settling.done()
    replies[0].set_result([])
    await settling
    assert wire.written.endswith(b'{"messages":[]}')
    assert connection.is_idle


async def test_response_waits_for_a_client_that_does_not_read() -> None:
    side = Side(has_plain=True)
    [replies, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE)
    connection.pause_writing()
    replies[0].set_result([])
    await asyncio.sleep(0)
    assert wire.written == b""
    assert not connection.is_idle
    connection.resume_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.written.endswith(b'{"messages":[]}')
    assert connection.is_idle
    assert side.application.limits.open_requests == 0


async def test_garbage_after_a_request_closes_after_its_response() -> None:
    side = Side(has_plain=True)
    [replies, (connection, wire)] = hold(side), connect(side)
    connection.data_received(RECEIVE + b"garbage\r\n\r\n")
    assert not wire.is_closed
    replies[0].set_result([])
    assert wire.written.endswith(b'{"messages":[]}')
    assert wire.is_closed
