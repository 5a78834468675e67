"""Group commit: one flush round at a time for the whole broker, shared by all waiting producers.

Records appended during a round are flushed in the next round. A few dirty logs are synced one by one, many with one
sync of the whole disk (docs/decisions/0002), which costs a single disk flush. A round runs in callbacks and not in a
task, because each additional turn of the event loop would delay the waiting producers. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.clock import Clock
from penstock.storage.disk import SYNC_ALL_ABOVE, Disk
from penstock.storage.jobs import FlushJob, sync_together
from penstock.storage.log import Log
from penstock.threads import Threads


class Flushable(Protocol):
    """Replica whose log has to become durable."""

    log: Log

    def on_flushed(self, job: FlushJob) -> None: ...

    def on_flush_failed(self, error: OSError) -> None: ...


_Jobs = list[tuple[Flushable, FlushJob]]


class Flusher:
    def __init__(
        self, disk: Disk, threads: Threads, clock: Clock, observe_seconds: Callable[[float], None]
    ) -> None:
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._observe_seconds = observe_seconds
        self._dirty: dict[Flushable, None] = {}
        self._unsynced = 0
        """Number of running syncs of the present round."""
        self._started = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self, replica: Flushable) -> None:
        """Make all records in the replica's log durable, in the next round."""
        self._dirty[replica] = None
        if self._idle.is_set():
            self._idle.clear()
            # Records appended in the same turn of the loop share the round.
            asyncio.get_running_loop().call_soon(self._begin_round)

    async def drain(self) -> None:
        """Wait until no requested flush is left."""
        while not self._idle.is_set():
            await self._idle.wait()

    def _begin_round(self) -> None:
        dirty, self._dirty = self._dirty, {}
        jobs = [(replica, replica.log.jobs.begin_flush()) for replica in dirty if not replica.log.failed]
        self._started = self._clock.monotonic()
        if len(jobs) > SYNC_ALL_ABOVE:
            work = partial(sync_together, self._disk, [job for _, job in jobs])
            self._threads.run("flush", work).add_done_callback(partial(self._on_synced_all, jobs))
        else:
            self._sync_each(jobs)

    def _sync_each(self, jobs: _Jobs) -> None:
        self._unsynced = len(jobs)
        for replica, job in jobs:
            synced = self._threads.run("flush", job.work)
            synced.add_done_callback(partial(self._on_synced, replica, job))
        if not jobs:
            self._end_round()

    def _on_synced(self, replica: Flushable, job: FlushJob, synced: asyncio.Future[None]) -> None:
        self._unsynced -= 1
        try:
            _settle(replica, job, synced.exception())
        finally:
            if self._unsynced == 0:
                self._end_round()

    def _on_synced_all(self, jobs: _Jobs, synced: asyncio.Future[bool]) -> None:
        """Settle all logs of the round. After an error all of them have failed, because it is unknown which one did."""
        error = synced.exception()
        if error is None and not synced.result():
            self._sync_each(jobs)  # the system has no call that syncs a whole disk
            return
        try:
            for replica, job in jobs:
                _settle(replica, job, error)
        finally:
            self._end_round()

    def _end_round(self) -> None:
        self._observe_seconds(self._clock.monotonic() - self._started)
        if self._dirty:
            self._begin_round()
        else:
            self._idle.set()


def _settle(replica: Flushable, job: FlushJob, error: BaseException | None) -> None:
    if error is None:
        replica.on_flushed(job)
    elif isinstance(error, OSError):
        replica.on_flush_failed(error)
    else:
        raise error
