"""HTTP clients of a queue that send, receive and settle ten messages in a request each."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import uvloop

from bench.driver import Figures, drive
from bench.http_client import HttpConnection, connect_http, http_request

TEN = 10


async def exchange(connection: HttpConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps(body).encode()
    answer = await connection.ask(http_request("POST", path, content, {"content-type": "application/json"}))
    if answer.status != 200:
        raise RuntimeError(f"{path} was answered with {answer.status}: {answer.body[:200]!r}")
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def work_on(connection: HttpConnection, queue: str, rounds: int) -> None:
    place, sent = f"/v1/queues/{queue}", {"messages": [{"value": "x" * 200}] * TEN}
    for _ in range(rounds):
        await exchange(connection, f"{place}/messages", sent)
        received = await exchange(connection, f"{place}/receive", {"max": TEN, "wait": 5})
        accepted = [{"receipt": each["receipt"], "action": "accept"} for each in received["messages"]]
        if accepted:
            await exchange(connection, f"{place}/settlements", {"settlements": accepted})


async def run(port: int, queue: str, clients: int, messages: int) -> Figures:
    opened = await connect_http(port, clients)
    rounds = messages // (clients * TEN)
    await asyncio.gather(*(work_on(each, queue, 5) for each in opened))
    began = time.perf_counter()
    await asyncio.gather(*(work_on(each, queue, rounds) for each in opened))
    return {"per_s": rounds * clients * TEN / (time.perf_counter() - began)}


def work(port: int, queue: str, clients: int, messages: int) -> Figures:
    return uvloop.run(run(port, queue, clients, messages))


if __name__ == "__main__":
    drive(work)
