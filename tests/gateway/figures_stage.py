"""Brokers with their gateways in the test's own process, and requests to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from support.eventually import eventually_async
from support.whole_brokers import Brokers, run

Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]


def with_gateway(tmp_path: Path, scenario: Scenario, **settings: str) -> None:
    """Run a scenario with requests to the gateway of one broker."""

    async def body(brokers: Brokers) -> None:
        await brokers.start(1)
        await serving(brokers, 1)
        async with client(brokers, 1) as http:
            await scenario(http)

    run(tmp_path, body, http_port="0", num_partitions="2", durability="os", **settings)


def client(brokers: Brokers, number: int) -> httpx.AsyncClient:
    port = brokers.running[number].http_port
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)


async def serving(brokers: Brokers, number: int) -> None:
    """Wait until the gateway of a broker responds."""
    async with client(brokers, number) as http:
        await eventually_async(
            lambda: http.get("/health"), "the gateway responds", ignoring=httpx.TransportError
        )


async def until(http: httpx.AsyncClient, path: str, holds: Callable[[Any], bool]) -> Any:
    """Repeat a request until its response is as expected."""
    found: Any = None

    async def is_as_expected() -> bool:
        nonlocal found
        found = (await http.get(path)).json()
        return holds(found)

    await eventually_async(is_as_expected, poll_s=0.1, details=lambda: found)
    return found


async def produce(http: httpx.AsyncClient, topic: str, *values: str, partition: int | None = None) -> None:
    messages = [{"key": f"k{place}", "value": value} for place, value in enumerate(values)]
    if partition is not None:
        messages = [{**message, "partition": partition} for message in messages]  # type: ignore[dict-item]
    answer = await http.post(f"/v1/topics/{topic}/messages", json={"messages": messages})
    assert answer.status_code == 200, answer.text
