"""Members of classic groups: time until all of them read, until the partitions of a dead member are read, and
commits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import uvloop

from bench.driver import Figures, drive
from bench.frames import one_record_batch
from bench.group_member import PATIENCE_S, GroupMember, all_read
from bench.measure import cpu_seconds
from bench.raw_client import connect_many_as, prepare_process, wait_for_leaders

LOOK_S = 0.001


async def join(
    bootstrap: str, topic: str, group: str, members: int, session_ms: int, heartbeat_s: float
) -> Figures:
    """Seconds until all members read, after the last one joins a group in which all others read."""
    made = await _connect(bootstrap, topic, [group] * members, members, session_ms)
    *early, last = made
    async with asyncio.TaskGroup() as tasks:
        staying = [
            tasks.create_task(_join_and_stay(member, number, members, heartbeat_s))
            for number, member in enumerate(early)
        ]
        await _until(lambda: not early or all_read(early))
        began = time.perf_counter()
        staying.append(tasks.create_task(_join_and_stay(last, members - 1, members, heartbeat_s)))
        await _until(lambda: all_read(made))
        seconds = max(member.reading_since for member in made) - began
        _end(made, staying)
    return {"ms": seconds * 1_000}


async def burst(
    bootstrap: str, topic: str, group: str, members: int, session_ms: int, heartbeat_s: float
) -> Figures:
    """Seconds until all members read, after all of them join at once."""
    made = await _connect(bootstrap, topic, [group] * members, members, session_ms)
    async with asyncio.TaskGroup() as tasks:
        began = time.perf_counter()
        staying = [
            tasks.create_task(_join_and_stay(member, number, members, heartbeat_s))
            for number, member in enumerate(made)
        ]
        await _until(lambda: all_read(made))
        seconds = max(member.reading_since for member in made) - began
        _end(made, staying)
    return {"ms": seconds * 1_000}


async def crash(
    bootstrap: str, topic: str, group: str, members: int, partitions: int, session_ms: int, heartbeat_s: float
) -> Figures:
    """Seconds until other members read the partitions of a member whose connection is dropped after a
    heartbeat.
    """
    made = await _connect(bootstrap, topic, [group] * members, partitions, session_ms)
    async with asyncio.TaskGroup() as tasks:
        staying = [
            tasks.create_task(_join_and_stay(member, number, members, heartbeat_s))
            for number, member in enumerate(made)
        ]
        await _until(lambda: all_read(made))
        victim, rest = made[-1], made[:-1]
        staying.pop().cancel()
        await victim.heartbeat()
        began = time.perf_counter()
        victim.close()
        await _until(lambda: all_read(rest))
        seconds = max(member.reading_since for member in rest) - began
        _end(rest, staying)
    return {"ms": seconds * 1_000, "beyond_session_ms": seconds * 1_000 - session_ms}


async def commits(
    bootstrap: str,
    topic: str,
    group: str,
    members: int,
    groups: int,
    session_ms: int,
    seconds: float,
    server_pid: int,
) -> Figures:
    """Commits of all members, each with one request at a time for the offset of its partition."""
    names = [f"{group}-{number % groups}" for number in range(members)]
    made = await _connect(bootstrap, topic, names, members, session_ms)
    async with asyncio.TaskGroup() as tasks:

        async def join_and_stay(member: GroupMember) -> None:
            await member.join()
            await member.stay(0.1, 0)

        staying = [tasks.create_task(join_and_stay(member)) for member in made]
        by_group = [[member for member in made if member.group == name] for name in set(names)]
        await _until(lambda: all(all_read(each) for each in by_group))
        for task in staying:
            task.cancel()
    done = [0] * members
    before, began = cpu_seconds(server_pid), time.perf_counter()

    async def commit(number: int, member: GroupMember) -> None:
        while time.perf_counter() < began + seconds:
            await member.commit(number, done[number])
            done[number] += 1

    await asyncio.gather(*(commit(*each) for each in enumerate(made)))
    taken, spent = time.perf_counter() - began, cpu_seconds(server_pid) - before
    _end(made, [])
    return {"commits_per_s": sum(done) / taken, "cpu_us_per_commit": spent / sum(done) * 1e6}


async def _connect(
    bootstrap: str, topic: str, groups: Sequence[str], partitions: int, session_ms: int
) -> list[GroupMember]:
    await wait_for_leaders(bootstrap, topic, partitions, one_record_batch(b"x", int(time.time() * 1_000)))
    names = iter(groups)
    made = await connect_many_as(
        bootstrap, len(groups), lambda: GroupMember(next(names), topic, partitions, session_ms)
    )
    await asyncio.gather(*(member.find_coordinator() for member in made))
    return list(made)


async def _join_and_stay(member: GroupMember, number: int, members: int, heartbeat_s: float) -> None:
    """Heartbeat with an offset within the interval, so that the members' heartbeats are spread."""
    await member.join()
    await member.stay(heartbeat_s, heartbeat_s * number / members)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(LOOK_S)


def _end(members: Sequence[GroupMember], tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for member in members:
        member.close()


def groups(what: str, **parameters: object) -> Figures:
    prepare_process()
    work = {"burst": burst, "crash": crash, "commits": commits, "join": join}[what]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work(**parameters))  # type: ignore[operator]


if __name__ == "__main__":
    drive(groups)
