from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from penstock.threads import POOL_SIZES
from simulation.machine.loop import SimulationLoop
from simulation.machine.process import SimulatedProcess
from simulation.machine.threads import SimulatedThreads
from simulation.machine.trace import Trace


@pytest.fixture
def threads(loop: SimulationLoop, trace: Trace) -> SimulatedThreads:
    return SimulatedThreads(loop, random.Random(1), trace)


def test_work_takes_virtual_time_and_runs_before_its_result_comes(
    loop: SimulationLoop, threads: SimulatedThreads
) -> None:
    async def main() -> tuple[float, float]:
        worked = await threads.run("flush", loop.time)
        return worked, loop.time()

    worked, delivered = loop.run_until_complete(main())
    assert 0 < worked < delivered


def test_exception_of_the_work_reaches_the_caller(loop: SimulationLoop, threads: SimulatedThreads) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await threads.run("read", lambda: 1 // 0)

    loop.run_until_complete(main())


def test_pool_runs_at_most_its_size_at_once(loop: SimulationLoop, threads: SimulatedThreads) -> None:
    async def main() -> list[float]:
        threads.slowness = 1e9
        works = [threads.run("read", loop.time) for _ in range(POOL_SIZES["read"])]
        threads.slowness = 1
        return list(await asyncio.gather(*works, threads.run("read", loop.time)))

    *worked, last = loop.run_until_complete(main())
    assert last > min(worked)


def test_work_of_a_crashed_process_neither_runs_nor_completes(
    loop: SimulationLoop, threads: SimulatedThreads
) -> None:
    happened: list[str] = []

    async def program() -> None:
        works = [threads.run("background", lambda: happened.append("work")) for _ in range(5)]
        await asyncio.gather(*works)
        happened.append("delivered")

    async def main() -> None:
        process = SimulatedProcess("broker")
        process.spawn(program())
        await asyncio.sleep(0)
        process.end()
        await asyncio.sleep(100)

    loop.run_until_complete(main())
    assert happened == []


def test_close_waits_for_all_work_and_refuses_further_work(
    loop: SimulationLoop, threads: SimulatedThreads
) -> None:
    done: list[int] = []

    async def main() -> None:
        works = [threads.run("background", partial(done.append, number)) for number in range(5)]
        threads.close()
        assert sorted(done) == list(range(5))
        with pytest.raises(RuntimeError):
            threads.run("read", lambda: None)
        await asyncio.gather(*works)

    loop.run_until_complete(main())
    assert sorted(done) == list(range(5))
