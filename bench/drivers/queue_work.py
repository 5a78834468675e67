"""Consumers of a queue with our client: one message at a time with workers, many at a time, dead letters, releases."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import uvloop

from bench.driver import Figures, drive
from bench.measure import percentile, rss_mb
from penstock.client.async_queue import AsyncQueue, AsyncQueueMessage
from penstock.client.queue import Queue, QueueMessage
from penstock.internal_client.client import InternalClient

WORKERS = 8
MANY = 1_000
PATIENCE_S = 300.0


def with_workers(bootstrap: str, queue: str, messages: int) -> Figures:
    """Accept messages one at a time, with a function in eight threads."""
    left, lock = messages, threading.Lock()
    with Queue(queue, bootstrap=bootstrap, workers=WORKERS) as opened:

        def work(message: QueueMessage) -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    opened.stop()

        began = time.perf_counter()
        opened.run(work)
        return {"per_s": messages / (time.perf_counter() - began)}


async def hundred_at_a_time(bootstrap: str, queue: str, messages: int) -> Figures:
    """Receive and accept a hundred messages at a time, on eight tasks."""
    left = messages
    async with AsyncQueue(queue, bootstrap=bootstrap) as opened:

        async def consume() -> None:
            nonlocal left
            while left > 0:
                received = await opened.receive_many(100, wait_s=1)
                left -= len(received)
                await opened.accept(received)

        began = time.perf_counter()
        await asyncio.gather(*(consume() for _ in range(WORKERS)))
        return {"per_s": messages / (time.perf_counter() - began)}


async def rejected(bootstrap: str, queue: str, messages: int) -> Figures:
    """Reject all messages, until their dead letters are written."""
    async with AsyncQueue(queue, bootstrap=bootstrap) as opened:
        began = time.perf_counter()
        left = messages
        while left > 0:
            received = await opened.receive_many(MANY, wait_s=1)
            left -= len(received)
            await asyncio.gather(*(each.reject() for each in received))
        async with InternalClient.to(bootstrap, "bench", 60.0) as client:
            while (await client.queues.describe(queue)).depth:
                await asyncio.sleep(0.02)
        return {"per_s": messages / (time.perf_counter() - began)}


async def released(bootstrap: str, queue: str, messages: int, pid: int, last_s: float) -> Figures:
    """Release all messages with delays up to `last_s`, and receive them when they are due."""
    due: dict[tuple[int, int], float] = {}
    late: list[float] = []
    source = random.Random(1)
    async with AsyncQueue(queue, bootstrap=bootstrap) as opened:

        async def release(message: AsyncQueueMessage) -> None:
            delay_s = last_s * (0.5 + source.random() / 2)
            due[message.partition, message.offset] = time.perf_counter() + delay_s
            await message.release(delay_s=delay_s)

        before_mb = rss_mb(pid)
        while len(due) < messages:
            received = await opened.receive_many(MANY, wait_s=1)
            await asyncio.gather(*map(release, received))
        memory_mb = rss_mb(pid) - before_mb

        async def consume() -> None:
            while len(late) < messages:
                received = await opened.receive_many(100, wait_s=1)
                now = time.perf_counter()
                late.extend(now - due[each.partition, each.offset] for each in received)
                await opened.accept(received)

        async with asyncio.timeout(last_s + PATIENCE_S):
            await asyncio.gather(*(consume() for _ in range(4)))
    late.sort()
    return {
        "memory_mb": memory_mb,
        "early_ms": max(0.0, -1_000 * late[0]),
        "late_p99_ms": 1_000 * percentile(late, 0.99),
    }


def work(how: str, bootstrap: str, queue: str, messages: int, pid: int = 0, last_s: float = 0) -> Figures:
    if how == "workers":
        return with_workers(bootstrap, queue, messages)
    if how == "released":
        return uvloop.run(released(bootstrap, queue, messages, pid, last_s))
    return uvloop.run((rejected if how == "rejected" else hundred_at_a_time)(bootstrap, queue, messages))


if __name__ == "__main__":
    drive(work)
