"""POST of batches of binary messages on a few connections, each with one request in flight."""

from __future__ import annotations

import asyncio
import random
import struct
import time

import uvloop

from bench.driver import Figures, drive
from bench.http_client import HttpConnection, connect_http, http_request
from bench.raw_client import prepare_process

CONTENT_TYPE = "application/vnd.penstock.messages"
NO_KEY = -1


def framed(size: int, count: int) -> bytes:
    source = random.Random(1)
    return b"".join(struct.pack(">ii", NO_KEY, size) + source.randbytes(size) for _ in range(count))


async def _send(connection: HttpConnection, request: bytes, times: int) -> None:
    for _ in range(times):
        answer = await connection.ask(request)
        if answer.status != 200:
            raise RuntimeError(f"a batch was answered with {answer.status}: {answer.body[:200]!r}")


async def drive_batches(
    port: int, topic: str, size: int, batch: int, connections: int, batches: int
) -> Figures:
    body = framed(size, batch)
    request = http_request("POST", f"/v1/topics/{topic}/messages", body, {"content-type": CONTENT_TYPE})
    opened = await connect_http(port, connections)
    for connection in opened:
        await _send(connection, request, 2)
    each = batches // connections
    began = time.perf_counter()
    await asyncio.gather(*(_send(connection, request, each) for connection in opened))
    seconds = time.perf_counter() - began
    messages = each * connections * batch
    return {"messages_per_s": messages / seconds, "mb_per_s": messages * size / seconds / 1e6}


def http_batches(**parameters: int) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_batches(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(http_batches)
