"""What is under way when a broker stops is answered: who is not would ask again, and be told that it is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harness import new_topic
from test_copies import started
from whole_brokers import WAIT_SECONDS, Brokers, run, until


def test_a_topic_that_is_made_while_the_broker_stops_is_answered(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, _ = await started(brokers, 2)
        broker = brokers.running[1]
        metadata, leave = broker._metadata, broker._membership.leave
        applied, is_written, may_go_on = metadata.applied, asyncio.Event(), asyncio.Event()

        async def applied_late(entry: int) -> None:
            await applied(entry)
            is_written.set()
            await may_go_on.wait()

        async def create() -> int:
            fields = {"topics": [new_topic("orders", 1, 1)], "timeout": 5_000, "validate_only": False}
            response = await first.ask(19, 7, fields)
            return int(response.topics[0].error_code)

        async def leave_meanwhile() -> None:
            await leave()
            metadata.applied = applied_late  # type: ignore[method-assign]
            tasks.append(asyncio.create_task(create()))
            await is_written.wait()

        tasks: list[asyncio.Task[int]] = []
        broker._membership.leave = leave_meanwhile  # type: ignore[method-assign]
        stopping = asyncio.create_task(brokers.stop(1))
        await until(lambda: is_written.is_set() and broker._acceptor._listener is None)
        may_go_on.set()
        assert await asyncio.wait_for(tasks[0], WAIT_SECONDS) == 0
        await stopping

    run(tmp_path, scenario)
