"""Requests of the command line to brokers of which some do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.wire.headers import RequestHeader
from penstock.wire.messages import encode_response_frame

LIST_REASSIGNMENTS = 46
NONE_MOVES = {"throttle_time": 0, "error_code": 0, "error_message": None, "topics": []}
ASKED = {"timeout": 1000, "topics": None}
PATIENCE_SECONDS = 0.1


@asynccontextmanager
async def listening(*, answers: bool, asked: list[int]) -> AsyncIterator[str]:
    """A broker that answers every request in the same way, or none."""

    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with_size = await reader.readexactly(4)
        frame = await reader.readexactly(int.from_bytes(with_size, "big"))
        asked.append(int.from_bytes(frame[4:8], "big"))
        if answers:
            header = RequestHeader(LIST_REASSIGNMENTS, 0, asked[-1], None)
            writer.write(encode_response_frame(header, NONE_MOVES))
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*filter(None, serving))


async def test_where_one_broker_is_silent_another_is_asked_and_asked_first_from_then_on() -> None:
    silent_asked: list[int] = []
    answering_asked: list[int] = []
    async with (
        listening(answers=False, asked=silent_asked) as silent,
        listening(answers=True, asked=answering_asked) as answering,
        ClusterClient(f"127.0.0.1:1,{silent},{answering}", PATIENCE_SECONDS) as client,
    ):
        answer = await client.ask(LIST_REASSIGNMENTS, 0, ASKED)
        assert answer.topics == ()
        assert (len(silent_asked), len(answering_asked)) == (1, 1)
        assert str(client._addresses[0]) == answering


async def test_brokers_that_cannot_be_reached_or_are_silent_are_named() -> None:
    async with (
        listening(answers=False, asked=[]) as silent,
        ClusterClient(f"127.0.0.1:1,{silent}", PATIENCE_SECONDS) as client,
    ):
        with pytest.raises(Failure) as failure:
            await client.ask(LIST_REASSIGNMENTS, 0, ASKED)
    assert f"{silent} (no answer)" in str(failure.value)
    assert "127.0.0.1:1 (" in str(failure.value)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Failure, match="'nonsense' is not HOST:PORT"):
        ClusterClient("nonsense")
