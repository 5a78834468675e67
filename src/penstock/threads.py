"""Thread pools for all blocking work, which must not run on the event loop: fsyncs, cold reads, rewrites of segments.

There are five pools, so that disk reads, fsyncs, compaction, password checks (which clients can cause) and name
lookups never wait for each other. The standard library's executors are not used, because every acknowledgement
that waits for an fsync passes through a pool: here a job costs one queue operation and one call to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
Pool = Literal["flush", "read", "background", "passwords", "names"]

POOL_SIZES: dict[Pool, int] = {"flush": 8, "read": 4, "background": 2, "passwords": 2, "names": 8}


class Threads(Protocol):
    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` in a pool, and return a future of the running loop."""
        ...

    def close(self) -> None:
        """Refuse new work, and wait until all submitted work is done."""
        ...


class ThreadPools:
    """Thread pools by name. Only the loop thread may call them."""

    def __init__(self) -> None:
        self._pools = {name: _ThreadPool(f"penstock-{name}", size) for name, size in POOL_SIZES.items()}

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._pools[pool].run(work)

    def close(self) -> None:
        for name, pool in self._pools.items():
            # A name server that does not respond must not delay the end of the process.
            pool.close(waits=name != "names")


class _ThreadPool:
    """Pool that starts a thread when all of its threads are busy, up to `size`, and keeps its threads."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._undelivered = 0
        self._is_closed = False

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise RuntimeError("the thread pool is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._undelivered += 1
        if self._undelivered > len(self._threads) < self._size:
            self._start_thread()
        self._jobs.put((loop, future, work))
        return future

    def close(self, *, waits: bool) -> None:
        """Finish all submitted jobs, then end the threads."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads if waits else ():
            thread.join()

    def _start_thread(self) -> None:
        thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, work = job
            result = error = None
            try:
                if not future.cancelled():
                    result = work()
            except BaseException as raised:  # noqa: BLE001 - the future carries whatever the work raised
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._deliver, future, result, error)
            del (
                job,
                future,
                work,
                result,
                error,
            )  # release the job's references while the thread waits for the next one

    def _deliver(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._undelivered -= 1
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


_Job = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]
