"""Search and the newest messages of a topic over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from figures_stage import produce, with_gateway

from penstock.clock import SystemClock
from penstock.gateway.http.problems import Problem
from penstock.gateway.records import GatewayRecords
from penstock.gateway.search import slots
from penstock.threads import ThreadPools


async def search(http: httpx.AsyncClient, topic: str, **query: Any) -> tuple[list[Any], Any]:
    """Return the matching messages and the last event."""
    events = []
    async with http.stream("POST", f"/v1/topics/{topic}/search", json=query) as stream:
        assert stream.status_code == 200, await stream.aread()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
    return [each["message"] for each in events if each["type"] == "match"], events[-1]


def test_search_finds_one_message_among_many(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t", "partitions": 2})
        for round_ in range(5):
            await produce(http, "t", *(f"value {round_} {number}" for number in range(2_000)))
        await produce(http, "t", '{"user": {"id": "ann"}}', partition=1)
        await produce(http, "t", *(f"later {number}" for number in range(2_000)))
        found, end = await search(http, "t", json_path="$.user.id", json_value="ann")
        assert [each["value"] for each in found] == ['{"user": {"id": "ann"}}']
        assert (end["type"], end["reason"], end["fraction"]) == ("end", "complete", 1)
        assert end["scanned_records"] == 12_001
        found, end = await search(http, "t", text="VALUE 3 17", limit=5)
        assert len(found) == 5
        assert end["reason"] == "limit"
        assert all("value 3 17" in each["value"] for each in found)
        found, end = await search(http, "t", filter='json.user.id == "ann"', text="ann")
        assert [each["value"] for each in found] == ['{"user": {"id": "ann"}}']
        assert end["failed"] == 0
        found, end = await search(http, "t", filter="partition == 1 && offset < 2")
        assert len(found) == 2
        found, end = await search(http, "t", text="value", max_bytes=1)
        assert end["reason"] == "bytes"
        found, end = await search(http, "t", text="user", partition=0)
        assert (found, end["reason"]) == ([], "complete")

    with_gateway(tmp_path, scenario)


def test_wrong_search_is_refused_and_limited(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t"})
        for query in (
            {"regex": "("},
            {"json_path": "$.."},
            {"header_value": "x"},
            {"json_value": "x"},
            {"filter": "("},
            {"x": 1},
        ):
            answer = await http.post("/v1/topics/t/search", json=query)
            assert answer.status_code == 400, query
        assert (await http.post("/v1/topics/none/search", json={})).status_code == 404
        assert (await http.post("/v1/topics/t/search", json={"partition": 9})).status_code == 404
        for _ in range(2 * slots.MAX_SEARCHES):
            # A search gives its place back, so one after the other is always possible.
            assert (await search(http, "t", text="x"))[1]["reason"] == "complete"

    with_gateway(tmp_path, scenario)


def test_searches_at_a_time_are_limited_for_each_client() -> None:
    running = slots.SearchSlots()
    for _ in range(slots.MAX_SEARCHES_OF_A_CLIENT):
        running.enter("a")
    with pytest.raises(Problem, match="too many searches"):
        running.enter("a")
    running.enter("b")
    running.leave("a")
    running.enter("a")


async def test_scans_of_several_searches_run_one_at_a_time() -> None:
    threads = ThreadPools()
    unused: Any = None
    records = GatewayRecords(unused, unused, unused, threads, unused, SystemClock())
    running: list[int] = []
    overlap = threading.Event()

    def scan(number: int) -> None:
        running.append(number)
        if len(running) > 1:
            overlap.set()
        overlap.wait(0.05)
        running.remove(number)

    await asyncio.gather(*(records.in_pool(partial(scan, number)) for number in range(4)))
    threads.close()
    assert not overlap.is_set()


def test_newest_messages_come_from_all_partitions(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t", "partitions": 3})
        for number in range(30):
            message = {"value": str(number), "partition": number % 3, "timestamp_ms": 1_000 + number}
            await http.post("/v1/topics/t/messages", json={"messages": [message]})
        page = (await http.get("/v1/topics/t/messages?newest=5")).json()
        assert [each["value"] for each in page["messages"]] == ["29", "28", "27", "26", "25"]
        assert page["positions"] == "0:10,1:10,2:10"
        alone = (await http.get("/v1/topics/t/messages?newest=2&partition=1")).json()
        assert [each["value"] for each in alone["messages"]] == ["28", "25"]
        assert (await http.get("/v1/topics/t/messages?newest=2&offset=1&partition=0")).status_code == 400

    with_gateway(tmp_path, scenario)


def test_newest_messages_are_found_behind_large_ones(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t", "partitions": 1})
        large = "x" * 900_000
        for number in range(14):
            await produce(http, "t", f"{number} {large}")
        page = (await http.get("/v1/topics/t/messages?newest=100")).json()
        assert page["messages"][0]["value"].startswith("13 ")
        await produce(http, "t", *(str(number) for number in range(50)))
        page = (await http.get("/v1/topics/t/messages?newest=20")).json()
        assert [each["value"] for each in page["messages"]] == [str(number) for number in range(49, 29, -1)]

    with_gateway(tmp_path, scenario)
