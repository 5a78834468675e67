from __future__ import annotations

import asyncio
import gc
import random

import pytest

from simulation.machine.loop import SimulationDeadlock, SimulationLivelock, SimulationLoop, new_loop
from simulation.machine.process import SimulatedCrash, SimulatedProcess


def test_time_jumps_to_the_next_timer(loop: SimulationLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(main()) == 86_400


def test_timeouts_are_in_virtual_time(loop: SimulationLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await loop.create_future()

    loop.run_until_complete(main())
    assert loop.time() == 5


def test_wait_without_a_timer_is_a_deadlock(loop: SimulationLoop) -> None:
    async def main() -> None:
        await loop.create_future()

    with pytest.raises(SimulationDeadlock, match="main"):
        loop.run_until_complete(main())


def test_spinning_without_time_is_a_livelock() -> None:
    loop = new_loop(callbacks_per_instant=1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationLivelock):
        loop.run_until_complete(main())
    loop.close()


def _order_of_ready_callbacks(shuffle: random.Random | None) -> list[int]:
    loop = new_loop(shuffle)
    order: list[int] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(append(number))

    async def append(number: int) -> None:
        order.append(number)

    loop.run_until_complete(main())
    loop.close()
    return order


def test_callbacks_run_in_their_order() -> None:
    assert _order_of_ready_callbacks(None) == list(range(20))


def test_seed_shuffles_ready_callbacks_and_repeats_itself() -> None:
    first, again = (_order_of_ready_callbacks(random.Random(7)) for _ in range(2))
    assert first == again
    assert first != list(range(20))
    assert sorted(first) == list(range(20))


def test_sets_of_tasks_have_the_same_order_in_every_run() -> None:
    def order() -> list[str]:
        loop = new_loop()

        async def main() -> list[str]:
            tasks = {asyncio.create_task(asyncio.sleep(1), name=str(number)) for number in range(50)}
            done, _ = await asyncio.wait(tasks)
            return [task.get_name() for task in done]

        names = loop.run_until_complete(main())
        loop.close()
        return names

    assert order() == order()


def test_dead_process_runs_nothing_not_even_its_cleanup(loop: SimulationLoop) -> None:
    ran: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("child")
        finally:
            ran.append("cleanup")

    async def program() -> None:
        asyncio.get_running_loop().call_later(1, ran.append, "callback")
        await asyncio.create_task(child())
        ran.append("program")

    async def main() -> None:
        process = SimulatedProcess("broker")
        process.spawn(program())
        await asyncio.sleep(0.5)
        process.end()
        del process
        gc.collect()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert ran == []


def test_crash_of_one_process_leaves_others_alone(loop: SimulationLoop) -> None:
    async def main() -> str:
        one, other = SimulatedProcess("one"), SimulatedProcess("other")
        one.spawn(asyncio.sleep(1))
        task = other.spawn(asyncio.sleep(1, "alive"))
        one.end()
        return await task

    assert loop.run_until_complete(main()) == "alive"


def test_crash_inside_a_task_is_not_reported_as_a_failure(loop: SimulationLoop) -> None:
    async def main() -> None:
        process = SimulatedProcess("broker")

        async def program() -> None:
            process.end()
            raise SimulatedCrash

        process.spawn(program())
        await asyncio.sleep(1)
        gc.collect()

    loop.run_until_complete(main())
    assert loop.unhandled == []


def test_uncaught_errors_are_kept() -> None:
    loop = new_loop()

    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    [context] = loop.unhandled
    assert isinstance(context["exception"], ZeroDivisionError)


def test_resumed_process_runs_the_callbacks_that_were_due(loop: SimulationLoop) -> None:
    done: list[tuple[str, float]] = []

    async def work(process: SimulatedProcess) -> None:
        await asyncio.sleep(1.0)
        done.append(("work", loop.time()))

    async def main() -> None:
        process = SimulatedProcess("broker")
        process.spawn(work(process))
        await asyncio.sleep(0.5)
        process.is_paused = True
        await asyncio.sleep(2.0)
        assert done == []
        loop.resume(process)
        await asyncio.sleep(0.1)
        assert done == [("work", 2.5)]

    loop.run_until_complete(main())
