"""`Threads` in virtual time: work runs inline, at some instant between its start and its completion.

The seed decides how work of a thread and callbacks of the loop are interleaved. Work runs in the context
of the process that asked for it: after a crash it neither runs nor completes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.threads import POOL_SIZES, Pool
from simulation.machine.trace import Trace

T = TypeVar("T")

_LATENCY_SECONDS: dict[Pool, tuple[float, float]] = {
    "flush": (0.0005, 0.008),
    "read": (0.0001, 0.004),
    "background": (0.001, 0.05),
    "passwords": (0.002, 0.02),
    "names": (0.001, 0.05),
}


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    context: Context
    worked: bool = False
    result: Any = None
    error: Exception | None = None


class SimulatedThreads:
    def __init__(self, loop: asyncio.AbstractEventLoop, random: random.Random, trace: Trace) -> None:
        self.slowness = 1.0
        """The factor by which work takes longer than usual."""
        self._loop = loop
        self._random = random
        self._trace = trace
        self._waiting: dict[Pool, deque[_Job]] = {pool: deque() for pool in POOL_SIZES}
        self._busy: dict[Pool, list[_Job]] = {pool: [] for pool in POOL_SIZES}
        self._closed = False

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise RuntimeError("the thread pool is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting[pool].append(_Job(work, future, copy_context()))
        self._start_next(pool)
        return future

    def close(self) -> None:
        """Finish all work before it returns, as the real pools do."""
        self._closed = True
        for pool, waiting in self._waiting.items():
            for job in self._busy[pool]:
                self._work(pool, job)
            while waiting:
                job = waiting.popleft()
                if not job.future.cancelled():
                    self._work(pool, job)
                    self._loop.call_soon(self._deliver, job, context=job.context)

    def _start_next(self, pool: Pool) -> None:
        while self._waiting[pool] and len(self._busy[pool]) < POOL_SIZES[pool]:
            job = self._waiting[pool].popleft()
            if not job.future.cancelled():
                self._busy[pool].append(job)
                self._schedule(pool, job)

    def _schedule(self, pool: Pool, job: _Job) -> None:
        duration = self._random.uniform(*_LATENCY_SECONDS[pool]) * self.slowness
        instant = self._random.uniform(0, duration)
        self._loop.call_later(instant, self._work, pool, job, context=job.context)
        self._loop.call_later(duration, self._finish, pool, job, context=job.context)

    def _work(self, pool: Pool, job: _Job) -> None:
        if job.worked:
            return
        job.worked = True
        self._trace.record("work", pool)
        try:
            job.result = job.work()
        except Exception as error:  # noqa: BLE001 - a future carries whatever the work raised
            job.error = error

    def _finish(self, pool: Pool, job: _Job) -> None:
        self._work(pool, job)  # done already, unless both timers were due in one shuffled instant
        self._busy[pool].remove(job)
        self._deliver(job)
        self._start_next(pool)

    @staticmethod
    def _deliver(job: _Job) -> None:
        if job.future.cancelled():
            return
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
