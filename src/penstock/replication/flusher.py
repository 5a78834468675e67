"""Group commit: one flush round at a time for the whole broker, shared by every producer that waits.

What is appended while a round runs goes into the next one. A few dirty logs are synced each on its own, many by one
sync of the whole disk (docs/decisions/0002): one by one they cost a disk flush each. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.clock import Clock
from penstock.storage.disk import Disk
from penstock.storage.jobs import FlushJob, sync_together
from penstock.storage.log import Log
from penstock.threads import Threads

SYNC_ALL_ABOVE = 4


class Flushable(Protocol):
    """A replica whose log wants to be durable."""

    log: Log

    def on_flushed(self, job: FlushJob) -> None: ...

    def on_flush_failed(self, error: OSError) -> None: ...


class Flusher:
    def __init__(
        self, disk: Disk, threads: Threads, clock: Clock, observe_seconds: Callable[[float], None]
    ) -> None:
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._observe_seconds = observe_seconds
        self._dirty: dict[Flushable, None] = {}
        self._round: asyncio.Task[None] | None = None

    def request(self, replica: Flushable) -> None:
        """Have everything appended to the replica's log so far made durable, in the next round."""
        self._dirty[replica] = None
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Wait until nothing asked for is left to flush."""
        while self._round is not None:
            await asyncio.wait([self._round])

    async def _run(self) -> None:
        try:
            while self._dirty:
                dirty, self._dirty = self._dirty, {}
                jobs = [(replica, replica.log.begin_flush()) for replica in dirty if not replica.log.failed]
                started = self._clock.monotonic()
                if len(jobs) <= SYNC_ALL_ABOVE or not await self._sync_all(jobs):
                    await asyncio.gather(*(self._sync_one(replica, job) for replica, job in jobs))
                self._observe_seconds(self._clock.monotonic() - started)
        finally:
            self._round = None

    async def _sync_one(self, replica: Flushable, job: FlushJob) -> None:
        try:
            await self._threads.run("flush", job.work)
        except OSError as error:
            replica.on_flush_failed(error)
        else:
            replica.on_flushed(job)

    async def _sync_all(self, jobs: list[tuple[Flushable, FlushJob]]) -> bool:
        """False where the system cannot; a failure then says nothing of which log it hit, so all have failed."""
        try:
            work = partial(sync_together, self._disk, [job for _, job in jobs])
            if not await self._threads.run("flush", work):
                return False
        except OSError as error:
            for replica, _ in jobs:
                replica.on_flush_failed(error)
        else:
            for replica, job in jobs:
                replica.on_flushed(job)
        return True
