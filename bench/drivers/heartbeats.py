"""Thousands of groups of one member, each on its own connection, that only send heartbeats.

The scenario measures the CPU time of the server during this time.
"""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.driver import Figures, drive
from bench.group_member import GroupMember
from bench.measure import cpu_seconds, percentile
from bench.raw_client import connect_many_as, prepare_process

SESSION_MS = 60_000
JOINING_AT_ONCE = 50


async def beat(
    bootstrap: str, topic: str, prefix: str, groups: int, interval_s: float, seconds: float, server_pid: int
) -> Figures:
    names = (f"{prefix}-{number}" for number in range(groups))
    made = await connect_many_as(bootstrap, groups, lambda: GroupMember(next(names), topic, 1, SESSION_MS))
    allowed = asyncio.Semaphore(JOINING_AT_ONCE)

    async def join(member: GroupMember) -> None:
        async with allowed:
            await member.find_coordinator()
            await member.join()

    await asyncio.gather(*(join(member) for member in made))
    waits_ms: list[float] = []

    async def stay(number: int, member: GroupMember) -> None:
        await asyncio.sleep(interval_s * number / groups)
        while True:
            began = time.perf_counter()
            if error := await member.heartbeat():
                raise RuntimeError(f"Heartbeat was answered with error {error}")
            waits_ms.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(max(0.0, began + interval_s - time.perf_counter()))

    tasks = [asyncio.create_task(stay(*each)) for each in enumerate(made)]
    await asyncio.sleep(2 * interval_s)
    waits_ms.clear()
    before, began = cpu_seconds(server_pid), time.perf_counter()
    await asyncio.sleep(seconds)
    spent, taken = cpu_seconds(server_pid) - before, time.perf_counter() - began
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    for member in made:
        member.close()
    return {
        "cpu_percent": 100 * spent / taken,
        "heartbeats_per_s": len(waits_ms) / taken,
        "p99_ms": percentile(waits_ms, 0.99),
    }


def heartbeats(**parameters: object) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(beat(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(heartbeats)
