"""Batches of messages to other brokers: each broker gets one request at a time, and messages that arrive
meanwhile share the next request.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.model import BrokerId

T = TypeVar("T")

MAX_TOGETHER = 2_000


class Batches(Generic[T]):
    def __init__(self, tell: Callable[[BrokerId, list[T]], Awaitable[None]]) -> None:
        """`tell` sends a batch. It must not raise: it handles every failure of the messages in the batch."""
        self._tell = tell
        self._waiting: dict[BrokerId, list[T]] = {}
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}

    def add(self, broker_id: BrokerId, thing: T) -> None:
        self._waiting.setdefault(broker_id, []).append(thing)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._work(broker_id))

    async def close(self) -> list[T]:
        """Cancel the requests in progress. Returns the messages that were in no request yet."""
        untold = [thing for things in self._waiting.values() for thing in things]
        self._waiting.clear()
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return untold

    async def _work(self, broker_id: BrokerId) -> None:
        try:
            while things := self._waiting.pop(broker_id, None):
                if len(things) > MAX_TOGETHER:
                    self._waiting[broker_id] = things[MAX_TOGETHER:]
                await self._tell(broker_id, things[:MAX_TOGETHER])
        finally:
            del self._tasks[broker_id]
