"""Many WebSockets of one queue that accept each message: how evenly they share the messages, and how fast."""

from __future__ import annotations

import asyncio
import json
import time

import uvloop
from websockets.asyncio.client import ClientConnection, connect

from bench.driver import Figures, drive

CONNECTING_AT_ONCE = 50
PATIENCE_S = 300.0


class Streams:
    def __init__(self, messages: int) -> None:
        self._left = messages
        self.counts: list[int] = []
        self.done = asyncio.Event()

    async def consume(self, number: int, client: ClientConnection) -> None:
        async for text in client:
            message = json.loads(text)
            if "receipt" not in message:
                continue
            self.counts[number] += 1
            self._left -= 1
            if self._left == 0:
                self.done.set()
            accepted = [{"receipt": message["receipt"], "action": "accept"}]
            await client.send(json.dumps({"settlements": accepted}))


async def stream(port: int, queue: str, streams: int, prefetch: int, messages: int) -> Figures:
    url = f"ws://127.0.0.1:{port}/v1/queues/{queue}/stream"
    clients: list[ClientConnection] = []
    while len(clients) < streams:
        together = min(CONNECTING_AT_ONCE, streams - len(clients))
        clients += await asyncio.gather(*(_open(url) for _ in range(together)))
    shared = Streams(messages)
    shared.counts = [0] * streams
    began = time.perf_counter()
    for client in clients:
        await client.send(json.dumps({"credit": prefetch}))
    tasks = [asyncio.ensure_future(shared.consume(*each)) for each in enumerate(clients)]
    await asyncio.wait_for(shared.done.wait(), PATIENCE_S)
    seconds = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(client.close() for client in clients))
    mean = messages / streams
    return {
        "per_s": messages / seconds,
        "least": min(shared.counts) / mean,
        "most": max(shared.counts) / mean,
    }


async def _open(url: str) -> ClientConnection:
    return await connect(url, compression=None, open_timeout=60)


def work(port: int, queue: str, streams: int, prefetch: int, messages: int) -> Figures:
    return uvloop.run(stream(port, queue, streams, prefetch, messages))


if __name__ == "__main__":
    drive(work)
