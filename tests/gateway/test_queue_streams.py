"""Queues over WebSockets: credit as prefetch, settlements by receipt, and messages that return to the queue."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from push_stage import Stage, on_stage
from test_push_sockets import is_quiet, message, narrow_socket, say
from test_queues_http import QUEUE, ask, create, receive, send, settle
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from support.eventually import eventually_async
from support.whole_brokers import Brokers


def stream(stage: Stage, query: str = "", queue: str = "orders") -> connect:
    return connect(f"ws://127.0.0.1:{stage.port}/v1/queues/{queue}/stream?{query}")


async def settled(client: ClientConnection, *receipts: str, action: str = "accept", **more: Any) -> list[Any]:
    """Settle messages and return the results; messages that come in between must not."""
    settlements = [{"receipt": each, "action": action, **more} for each in receipts]
    await say(client, settlements=settlements)
    return list((await message(client))["results"])


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 2])
def test_credit_is_the_number_of_unsettled_messages(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=3)
        await send(stage, *range(6))
        async with stream(stage) as client:
            assert await is_quiet(client), "nothing comes without credit"
            await say(client, credit=2)
            first, second = await message(client), await message(client)
            assert await is_quiet(client)
            assert (first["attempt"], first["lock_s"]) == (1, 30.0)
            await say(client, settlements=[{"receipt": first["receipt"], "action": "accept"}])
            answers = [await message(client), await message(client)]
            [results] = [each["results"] for each in answers if "results" in each]
            [third] = [each for each in answers if "results" not in each]
            assert results == [{"receipt": first["receipt"], "status": "ok"}]
            assert await is_quiet(client)
            await say(client, credit=1)
            fourth = await message(client)
            assert len({each["value"] for each in (first, second, third, fourth)}) == 4
            described = await ask(stage, "GET", QUEUE)
            assert (described["depth"], described["in_flight"]) == (5, 3)

    on_stage(tmp_path, scenario, brokers=brokers)


def test_receipt_of_another_socket_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a", "b")
        async with stream(stage) as one, stream(stage) as other:
            await say(one, credit=1)
            await say(other, credit=1)
            mine, foreign = await message(one), await message(other)
            [refused] = await settled(one, foreign["receipt"])
            assert (refused["status"], refused["error"]) == ("error", "INVALID_RECORD_STATE")
            assert "this socket holds no message" in refused["detail"]
            [unknown] = await settled(one, "nonsense")
            assert unknown["status"] == "error"
            for client, held in ((one, mine), (other, foreign)):
                [result] = await settled(client, held["receipt"])
                assert result["status"] == "ok"
            [twice] = await settled(one, mine["receipt"])
            assert twice["status"] == "error"
        assert (await ask(stage, "GET", QUEUE))["depth"] == 0

    on_stage(tmp_path, scenario)


def test_actions_have_the_results_of_http(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a", "b")
        async with stream(stage) as client:
            await say(client, credit=2)
            first, second = await message(client), await message(client)
            [result] = await settled(client, second["receipt"], action="extend", lock_s=100)
            assert result["status"] == "ok"
            [result] = await settled(client, second["receipt"], action="release", delay_ms=3_600_000)
            assert result["status"] == "ok"
            [result] = await settled(client, first["receipt"], action="reject", reason="bad")
            assert result["status"] == "ok"
        described = await ask(stage, "GET", QUEUE)
        assert (described["depth"], described["delayed"]) == (1, 1)

    on_stage(tmp_path, scenario)


def test_messages_return_at_once_when_the_socket_closes(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=2, lock_s=600)
        await send(stage, *range(4))
        async with stream(stage) as client:
            await say(client, credit=10)
            given = [await message(client) for _ in range(4)]
            [result] = await settled(client, given[0]["receipt"])
            assert result["status"] == "ok"
        assert (await settle(stage, given[1]["receipt"], "accept"))["status"] == "error"
        found: list[Any] = []
        while len(found) < 3:
            found += await receive(stage, max=10, wait=20)
        assert sorted(each["value"] for each in found) == sorted(each["value"] for each in given[1:])
        assert {each["attempt"] for each in found} == {2}
        await eventually_async(lambda: stage.push.queues.open_streams == 0)

    on_stage(tmp_path, scenario)


def test_messages_return_when_the_gateway_stops(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1, lock_s=600)
        await send(stage, "a")
        other = Stage(brokers, {}, "other")
        await other.start()
        async with stream(other) as client:
            await say(client, credit=1)
            await message(client)
            await other.stop()
            with pytest.raises(ConnectionClosedError) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code in (1001, 1012)
        [again] = await receive(stage, wait=10)
        assert again["attempt"] == 2

    on_stage(tmp_path, scenario)


def test_stream_that_never_settles_takes_its_credit_once(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1, max_attempts=10)
        await send(stage, *range(5))
        async with stream(stage, "lock_s=0.05") as greedy, stream(stage) as honest:
            await say(greedy, credit=3)
            held = [await message(greedy) for _ in range(3)]
            await say(honest, credit=5)
            given = [await message(honest) for _ in range(5)]
            assert sorted(each["value"] for each in given) == list(range(5))
            assert await is_quiet(greedy)
            [expired] = await settled(greedy, held[0]["receipt"])
            assert expired["error"] == "INVALID_RECORD_STATE"
            results = await settled(honest, *(each["receipt"] for each in given))
            assert {each["status"] for each in results} == {"ok"}

    on_stage(tmp_path, scenario)


def test_streams_share_messages_evenly(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=4)
        counts: Counter[int] = Counter()
        async with asyncio.TaskGroup() as group, asyncio.timeout(60):
            clients = [await stream(stage) for _ in range(20)]
            for client in clients:
                await say(client, credit=10)

            async def consume(number: int, client: ClientConnection) -> None:
                while sum(counts.values()) < 400:
                    try:
                        got = json.loads(await asyncio.wait_for(client.recv(), 0.2))
                    except TimeoutError:
                        continue
                    if "receipt" in got:
                        counts[number] += 1
                        await say(client, settlements=[{"receipt": got["receipt"], "action": "accept"}])

            tasks = [group.create_task(consume(number, each)) for number, each in enumerate(clients)]
            for start in range(0, 400, 100):
                await send(stage, *range(start, start + 100))
            await asyncio.gather(*tasks)
        for client in clients:
            await client.close()
        assert sum(counts.values()) == 400
        assert min(counts[number] for number in range(20)) >= 10, counts

    on_stage(tmp_path, scenario)


def test_slow_reader_takes_few_messages_from_others(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        url = f"ws://127.0.0.1:{stage.port}/v1/queues/orders/stream"
        async with connect(url, sock=narrow_socket(stage.port)) as slow:
            slow.transport.pause_reading()
            await say(slow, credit=1_000)
            for _ in range(10):
                await send(stage, *["x" * 20_000] * 30)
            [connection] = [each for each in stage.connections if hasattr(each, "writable")]
            await eventually_async(lambda: not connection.writable.is_set())
            found = 0
            async with asyncio.timeout(30):
                while found < 150:
                    found += len(await receive(stage, max=100, wait=5))
            assert connection.transport.get_write_buffer_size() < 256 * 1024
            slow.transport.resume_reading()

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize(
    "said",
    [
        '{"credit": 0}',
        '{"credit": 10000000}',
        '{"credit": "many"}',
        '{"settlements": []}',
        '{"settlements": [{"receipt": "x"}]}',
        '{"settlements": [{"receipt": "x", "action": "eat"}]}',
        '{"ack": "x"}',
        "[]",
        b'{"credit": 1}',
    ],
)
def test_invalid_message_closes_the_stream(tmp_path: Path, said: str | bytes) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a")
        async with stream(stage) as client:
            await say(client, credit=1)
            await message(client)
            await client.send(said)
            assert (await message(client))["error"]["status"] == 400
            with pytest.raises(ConnectionClosedError) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4400
        assert [each["value"] for each in await receive(stage, wait=10)] == ["a"]

    on_stage(tmp_path, scenario)


def test_missing_queue_refuses_the_handshake_and_deletion_ends_streams(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with stream(stage):
                pass
        assert refused.value.response.status_code == 404
        await create(stage, partitions=1)
        answer = await stage.http.get(f"{QUEUE}/stream")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        async with stream(stage) as client:
            await say(client, credit=1)
            await ask(stage, "DELETE", QUEUE, status=204)
            assert (await message(client))["error"]["status"] == 404

    on_stage(tmp_path, scenario)


def test_openapi_and_metrics_describe_queue_streams(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, {"id": 1})
        paths = (await stage.http.get("/openapi.json")).json()["paths"]
        messages = paths["/v1/queues/{queue}/stream"]["get"]["x-websocket-messages"]
        theirs = jsonschema.Draft202012Validator(messages["gateway"])
        async with stream(stage) as client:
            jsonschema.Draft202012Validator(messages["client"]).validate({"credit": 1})
            await say(client, credit=1)
            given = await message(client)
            theirs.validate(given)
            await say(client, settlements=[{"receipt": given["receipt"], "action": "accept"}])
            theirs.validate(await message(client))
            told = (await stage.http.get("/metrics")).text
            assert "penstock_queue_streams 1.0" in told
            assert "penstock_queue_stream_messages_total 1.0" in told

    on_stage(tmp_path, scenario)
