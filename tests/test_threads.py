"""Thread pools for blocking work."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from penstock.threads import POOL_SIZES, ThreadPools


async def test_work_runs_off_the_loop_and_its_result_comes_back() -> None:
    threads = ThreadPools()
    where = await threads.run("read", threading.get_ident)
    assert where != threading.get_ident()
    threads.close()


async def test_exceptions_of_the_work_reach_the_caller() -> None:
    threads = ThreadPools()

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        await threads.run("flush", fail)
    threads.close()


async def test_a_pool_runs_one_job_per_thread_at_once() -> None:
    threads = ThreadPools()
    size = POOL_SIZES["background"]
    all_run = threading.Barrier(size + 1)
    may_end = threading.Event()
    started: list[int] = []

    def work(number: int) -> None:
        started.append(number)
        if number < size:
            all_run.wait(10)
            may_end.wait(10)

    futures = [threads.run("background", partial(work, number)) for number in range(size + 1)]
    await asyncio.to_thread(all_run.wait, 10)
    assert sorted(started) == list(range(size))
    may_end.set()
    await asyncio.gather(*futures)
    assert len(started) == size + 1
    threads.close()


async def test_threads_are_used_again() -> None:
    threads = ThreadPools()
    first = await threads.run("flush", threading.get_ident)
    assert await threads.run("flush", threading.get_ident) == first
    threads.close()


async def test_pools_do_not_wait_for_each_other() -> None:
    threads = ThreadPools()
    release = threading.Event()
    held = [threads.run("flush", lambda: release.wait(10)) for _ in range(POOL_SIZES["flush"])]
    assert await threads.run("read", lambda: 1) == 1
    release.set()
    await asyncio.gather(*held)
    threads.close()


async def test_close_waits_for_submitted_work_and_refuses_further_work() -> None:
    threads = ThreadPools()
    done: list[int] = []
    futures = [threads.run("background", partial(done.append, number)) for number in range(20)]
    threads.close()
    assert sorted(done) == list(range(20))
    with pytest.raises(RuntimeError):
        threads.run("background", lambda: None)
    await asyncio.gather(*futures)


async def test_work_whose_future_was_cancelled_before_it_began_is_not_done() -> None:
    threads = ThreadPools()
    size = POOL_SIZES["background"]
    release = threading.Event()
    held = [threads.run("background", lambda: release.wait(10)) for _ in range(size)]
    done: list[int] = []
    unwanted = threads.run("background", lambda: done.append(1))
    unwanted.cancel()
    release.set()
    await asyncio.gather(*held)
    threads.close()
    assert done == []
