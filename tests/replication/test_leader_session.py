"""Fetch requests on one connection to a leader: when the next one is sent, and when the session ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.net.broker_connection import BrokerConnection
from penstock.replication.leader_session import FETCH_VERSION, LeaderSession
from penstock.unreachable import ConnectionLost
from penstock.wire.fetch import FetchRequest, encode_fetch_response
from penstock.wire.fetch_client import FetchResponse

SESSION_ID = 7


class Wire:
    """Client that keeps the requests it is given."""

    client_id = "test"

    def __init__(self) -> None:
        self.sent = 0

    def next_correlation_id(self) -> int:
        return 1

    def submit(self, correlation_id: int, frame: bytes, asker: object) -> None:
        self.sent += 1


class Copies:
    """Follower of one partition."""

    def __init__(self) -> None:
        self.followed = 1
        self.has_news = True
        self.is_waiting = False
        self.asked: list[tuple[int, int]] = []
        self.taken: list[FetchResponse] = []
        self.trouble: Exception | None = None

    def __len__(self) -> int:
        return self.followed

    def request(self, session_id: int, session_epoch: int) -> FetchRequest:
        self.asked.append((session_id, session_epoch))
        self.has_news, self.is_waiting = False, True
        return FetchRequest(500, 1, [], [], session_id=session_id, session_epoch=session_epoch)

    def take(self, response: FetchResponse, session_epoch: int) -> None:
        self.taken.append(response)
        if self.trouble is not None:
            raise self.trouble


class Bench:
    def __init__(self) -> None:
        self.wire, self.copies = Wire(), Copies()
        self.session = LeaderSession(cast(BrokerConnection, self.wire), self.copies)
        self.running = asyncio.get_running_loop().create_task(self.session.run(60))

    def answer(self, error_code: int = 0) -> None:
        parts = encode_fetch_response(
            1, FETCH_VERSION, topics=[], error_code=error_code, session_id=SESSION_ID
        )
        frame = b"".join(cast(list[Any], parts))
        self.session.set_result(memoryview(frame)[4:])


async def begun() -> Bench:
    bench = Bench()
    await asyncio.sleep(0)
    assert bench.copies.asked == [(0, 0)]
    return bench


async def test_next_fetch_is_sent_in_the_loop_turn_of_the_response() -> None:
    bench = await begun()
    bench.answer()
    assert len(bench.copies.taken) == 1
    assert bench.copies.asked == [(0, 0), (SESSION_ID, 1)]
    bench.running.cancel()


async def test_changes_of_one_loop_turn_are_sent_in_one_fetch() -> None:
    bench = await begun()
    bench.answer()
    bench.copies.has_news = True
    bench.session.on_news()
    bench.session.on_news()
    await asyncio.sleep(0)
    assert bench.wire.sent == 3
    bench.running.cancel()


async def test_at_most_two_fetches_are_in_flight() -> None:
    bench = await begun()
    bench.answer()
    for _ in range(3):
        bench.copies.has_news = True
        bench.session.on_news()
        await asyncio.sleep(0)
    assert bench.wire.sent == 3
    bench.answer()
    assert bench.wire.sent == 4
    bench.running.cancel()


async def test_no_second_fetch_is_sent_before_the_session_has_an_id() -> None:
    bench = await begun()
    bench.copies.has_news = True
    bench.session.on_news()
    await asyncio.sleep(0)
    assert bench.wire.sent == 1
    bench.running.cancel()


async def test_no_request_is_sent_while_fetched_records_are_fsynced() -> None:
    bench = await begun()
    bench.copies.is_waiting = False
    bench.answer()
    assert bench.wire.sent == 1
    bench.copies.has_news = True
    bench.session.on_news()
    await asyncio.sleep(0)
    assert bench.wire.sent == 2
    bench.running.cancel()


async def test_session_ends_without_followed_partitions() -> None:
    bench = await begun()
    bench.copies.followed = 0
    bench.answer()
    await bench.running


@pytest.mark.parametrize("trouble", [OSError("disk"), ValueError("a bug")])
async def test_run_raises_the_error_of_a_response(trouble: Exception) -> None:
    bench = await begun()
    bench.copies.trouble = trouble
    bench.answer()
    with pytest.raises(type(trouble)):
        await bench.running


async def test_run_raises_when_the_leader_refuses_the_session() -> None:
    bench = await begun()
    bench.answer(ErrorCode.fetch_session_id_not_found)
    with pytest.raises(BrokerError):
        await bench.running


async def test_run_raises_when_the_connection_is_lost() -> None:
    bench = await begun()
    bench.session.set_exception(ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        await bench.running


async def test_run_raises_a_timeout_when_the_leader_is_silent() -> None:
    copies = Copies()
    with pytest.raises(TimeoutError):
        await LeaderSession(cast(BrokerConnection, Wire()), copies).run(0.01)
