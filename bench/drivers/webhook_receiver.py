"""A receiver of webhooks that answers 200 at once, and creates the webhook that it measures."""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.driver import Figures, drive
from penstock.internal_client.client import InternalClient
from penstock.internal_client.webhooks import NewWebhook

PATIENCE_S = 300.0
_END = b"\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Receiver:
    def __init__(self, wanted: int) -> None:
        self.count = 0
        self._wanted = wanted
        self.first = 0.0
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(_END)
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                self._note()
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _note(self) -> None:
        self.count += 1
        if self.count == 1:
            self.first = time.perf_counter()
        if self.count == self._wanted and not self.done.done():
            self.done.set_result(time.perf_counter())


async def receive(bootstrap: str, queue: str, webhook: str, messages: int, concurrency: int) -> Figures:
    receiver = Receiver(messages)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with InternalClient.to(bootstrap, "bench", PATIENCE_S) as client:
        new = NewWebhook(webhook, f"http://127.0.0.1:{port}/", queue, concurrency=concurrency)
        await client.webhooks.create(new)
        ended = await asyncio.wait_for(receiver.done, PATIENCE_S)
        await client.webhooks.delete(webhook)
    server.close()
    return {"per_s": (messages - 1) / (ended - receiver.first), "calls": receiver.count}


def work(bootstrap: str, queue: str, webhook: str, messages: int, concurrency: int) -> Figures:
    return uvloop.run(receive(bootstrap, queue, webhook, messages, concurrency))


if __name__ == "__main__":
    drive(work)
