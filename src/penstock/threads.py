"""Blocking work, as a seam: fsyncs, cold reads and background rewrites leave the event loop only through here.

Three pools, so that a slow disk read never queues behind an fsync, nor either behind a compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")
Pool = Literal["flush", "read", "background"]

POOL_SIZES: dict[Pool, int] = {"flush": 8, "read": 4, "background": 2}


class Threads(Protocol):
    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` off the loop; the future belongs to the running loop."""
        ...

    def close(self) -> None:
        """Wait for running work and take no more."""
        ...


class ThreadPools:
    def __init__(self) -> None:
        self._pools = {
            name: ThreadPoolExecutor(size, thread_name_prefix=f"penstock-{name}")
            for name, size in POOL_SIZES.items()
        }

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pools[pool], work)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True)
