"""Requests to any broker where some brokers do not respond, or the port belongs to another protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.cli.admin_client import admin_client, reported
from penstock.cli.failures import Failure
from penstock.internal_client.client import InternalClient
from penstock.unreachable import Unreachable
from penstock.wire.headers import RequestHeader
from penstock.wire.messages import encode_response_frame

LIST_REASSIGNMENTS = 46
NONE_MOVES: dict[str, object] = {"throttle_time": 0, "error_code": 0, "error_message": None, "topics": []}
RESPONSE_SECONDS = 1.0


@asynccontextmanager
async def listening(*, answers: bool, asked: list[int]) -> AsyncIterator[str]:
    """A broker that sends the same response to every request, or none."""

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


def client_of(bootstrap: str) -> InternalClient:
    return admin_client(bootstrap, RESPONSE_SECONDS)


@pytest.mark.slow
async def test_asks_next_broker_where_one_is_silent_and_prefers_it_afterwards() -> None:
    silent_asked: list[int] = []
    answering_asked: list[int] = []
    async with (
        listening(answers=False, asked=silent_asked) as silent,
        listening(answers=True, asked=answering_asked) as answering,
        client_of(f"127.0.0.1:1,{silent},{answering}") as client,
    ):
        assert await client.reassignments.all() == {}
        assert (len(silent_asked), len(answering_asked)) == (1, 1)


@pytest.mark.slow
async def test_names_every_address_that_does_not_respond() -> None:
    async with (
        listening(answers=False, asked=[]) as silent,
        client_of(f"127.0.0.1:1,{silent}") as client,
    ):
        with pytest.raises(Failure) as failure, reported():
            await client.reassignments.all()
    assert f"{silent} (no response)" in str(failure.value)
    assert "cannot reach a broker at 127.0.0.1:1 (" in str(failure.value)


def test_refuses_text_that_is_no_address() -> None:
    with pytest.raises(Failure, match="'nonsense' is not HOST:PORT"):
        admin_client("nonsense")


@pytest.mark.parametrize(
    ("response", "protocol"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"), (b"\x15\x03\x01\x00\x02\x02\x46", "TLS")],
)
async def test_names_another_protocol_at_once(response: bytes, protocol: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(response)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(30), InternalClient.to(address, "test", 60) as client:
            with pytest.raises(
                Unreachable, match=f"there is no Kafka broker at {address} .*{protocol}"
            ) as error:
                await client.transactions.describe("t")
    assert error.value.is_wrong_port


async def test_names_tls_port_that_closes_in_silence() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(2)).startswith(b"\x16\x03"):
            writer.write(b"\x15\x03\x01\x00\x02\x02\x46")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(30), InternalClient.to(address, "test", 60) as client:
            with pytest.raises(Unreachable, match="speaks TLS"):
                await client.topics.all()
