"""Topics over WebSockets: credit, acknowledgements, and refused messages."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from push_stage import Stage, on_stage
from test_push_events import ORDERS, create
from test_push_groups import committed, until_committed
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from penstock.gateway.http import server
from support.eventually import eventually_async
from support.whole_brokers import Brokers

QUIET_SECONDS = 0.3


def stream(stage: Stage, query: str, topic: str = ORDERS) -> connect:
    return connect(f"ws://127.0.0.1:{stage.port}/v1/topics/{topic}/stream?{query}")


async def values(client: ClientConnection, count: int) -> list[str]:
    return [(await message(client))["value"] for _ in range(count)]


async def message(client: ClientConnection) -> Any:
    async with asyncio.timeout(20):
        return json.loads(await client.recv())


async def say(client: ClientConnection, **what: object) -> None:
    await client.send(json.dumps(what))


async def is_quiet(client: ClientConnection) -> bool:
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            await client.recv()
    except TimeoutError:
        return True
    return False


def test_openapi_describes_websocket_messages_and_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "one")
        operation = (await stage.http.get("/openapi.json")).json()["paths"]["/v1/topics/{topic}/stream"][
            "get"
        ]
        messages = operation["x-websocket-messages"]
        ours = {"credit": 1, "ack": None}
        jsonschema.Draft202012Validator(messages["client"]).validate(ours)
        async with stream(stage, "from=earliest&partition=") as client:
            await say(client, **ours)
            jsonschema.Draft202012Validator(messages["gateway"]).validate(await message(client))
        page = (await stage.http.get("/")).text
        assert "/v1/topics/{topic}/stream" in page
        assert "credit" in page
        answer = await stage.http.get(f"/v1/topics/{ORDERS}/stream")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")

    on_stage(tmp_path, scenario)


def test_messages_are_bounded_by_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(100)))
        async with stream(stage, "from=earliest") as client:
            assert await is_quiet(client)
            await say(client, credit=3)
            assert await values(client, 3) == ["0", "1", "2"]
            assert await is_quiet(client)
            await say(client, credit=1)
            await say(client, credit=96)
            assert await values(client, 97) == [str(number) for number in range(3, 100)]

    on_stage(tmp_path, scenario)


def test_group_continues_at_acknowledged_offsets(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(10)))
        async with stream(stage, "group=readers") as client:
            await say(client, credit=10)
            received = [await message(client) for _ in range(10)]
            await say(client, ack=received[6]["id"])
            await until_committed(stage, {0: 7})
            await say(client, ack=received[2]["id"])
        async with stream(stage, "group=readers") as client:
            await say(client, credit=10)
            assert await values(client, 3) == ["7", "8", "9"]
        assert await committed(stage) == {0: 7}

    on_stage(tmp_path, scenario)


def test_client_resumes_at_another_gateway_by_event_id(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(10)))
        async with stream(stage, "from=earliest") as client:
            await say(client, credit=4)
            last = [await message(client) for _ in range(4)][-1]["id"]
        async with stream(stage, f"last_event_id={last}") as client:
            await say(client, credit=10)
            assert await values(client, 6) == ["4", "5", "6", "7", "8", "9"]

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize(
    "said",
    [
        '{"credit": -1}',
        '{"credit": 10000000}',
        '{"credit": "many"}',
        '{"credit": 1, "credit": 2}',
        '{"more": 1}',
        '{"ack": "AAAA"}',
        '{"ack": 5}',
        "[]",
        "x",
        "[" * 10_000,
        b'{"credit": 1}',
    ],
)
def test_invalid_client_message_closes_the_connection(tmp_path: Path, said: str | bytes) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stream(stage, "group=readers") as client:
            await client.send(said)
            problem = (await message(client))["error"]
            assert problem["status"] == 400
            with pytest.raises(ConnectionClosedError) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4400
        await eventually_async(lambda: stage.push._groups == {})

    on_stage(tmp_path, scenario)


def test_refused_handshake_gets_a_problem_document(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        for query, topic, status in (("", "nowhere", 404), ("offset=1", ORDERS, 400), ("x=1", ORDERS, 400)):
            with pytest.raises(InvalidStatus) as refused:
                async with stream(stage, query, topic):
                    pass
            assert refused.value.response.status_code == status
            assert json.loads(refused.value.response.body or b"")["status"] == status

    on_stage(tmp_path, scenario)


def narrow_socket(port: int) -> socket.socket:
    """A gateway whose sockets have a small send buffer."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    narrow.connect(("127.0.0.1", port))
    narrow.setblocking(False)
    return narrow


def test_slow_client_holds_only_its_socket_buffer(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        narrow = narrow_socket(stage.port)
        url = f"ws://127.0.0.1:{stage.port}/v1/topics/{ORDERS}/stream?from=earliest"
        async with connect(url, sock=narrow) as client:
            client.transport.pause_reading()
            await say(client, credit=100_000)
            for _ in range(40):
                await stage.send(ORDERS, *["x" * 10_000] * 40)
            [feed] = stage.push._feeds._feeds.values()
            [connection] = [each for each in stage.connections if hasattr(each, "writable")]
            await eventually_async(lambda: not connection.writable.is_set())
            assert connection.transport.get_write_buffer_size() < 256 * 1024
            before = feed.end
            await stage.send(ORDERS, "y")
            assert feed.end == before, "nothing is read for one who takes nothing"
            client.transport.resume_reading()
            assert (await values(client, 1_601))[-1] == "y"

    on_stage(tmp_path, scenario)


@pytest.mark.slow
def test_client_that_does_not_read_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SWEEP_SECONDS", 0.05)

    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        for _ in range(20):
            await stage.send(ORDERS, *["x" * 10_000] * 40)
        narrow = narrow_socket(stage.port)
        url = f"ws://127.0.0.1:{stage.port}/v1/topics/{ORDERS}/stream?group=readers"
        async with connect(url, sock=narrow) as client:
            client.transport.pause_reading()
            await say(client, credit=100_000)
            await eventually_async(lambda: stage.push._groups)
            await eventually_async(lambda: not stage.push._groups)
            assert (await stage.backend.groups.describe("readers")).members == ()
            client.transport.abort()

    on_stage(tmp_path, scenario, gateway_write_timeout_ms="1000")


def test_gateway_stop_closes_websockets_with_1001(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stream(stage, "group=readers") as client:
            stage.gateway.drain()
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        await eventually_async(lambda: not stage.push._groups)
        assert (await stage.backend.groups.describe("readers")).members == ()

    on_stage(tmp_path, scenario)


@pytest.mark.slow
def test_too_many_connections_of_one_client_get_429(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stream(stage, ""), stream(stage, ""):
            with pytest.raises(InvalidStatus) as refused:
                async with stream(stage, ""):
                    pass
            assert refused.value.response.status_code == 429
        await eventually_async(lambda: stage.gateway.application.limits.open_requests == 0)

    on_stage(tmp_path, scenario, gateway_client_max_requests="2")
