from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from penstock.server.long_polls import LongPolls


def test_wait_is_at_most_a_quarter_shorter_than_requested() -> None:
    polls = LongPolls(Random(1))
    waits = [polls.wait_seconds(400) for _ in range(1_000)]
    assert 0.3 <= min(waits) < 0.31
    assert 0.39 < max(waits) <= 0.4


async def test_event_loop_runs_other_work_between_due_long_polls() -> None:
    polls = LongPolls(Random(1))
    order: list[int | str] = []
    for number in range(100):
        polls.serve(partial(order.append, number))
    asyncio.get_running_loop().call_soon(order.append, "other")
    while len(order) < 101:
        await asyncio.sleep(0)
    assert order.index("other") <= 32
    assert [each for each in order if each != "other"] == list(range(100))


async def test_long_poll_due_during_a_run_is_served_in_it() -> None:
    polls, order = LongPolls(Random(1)), []
    polls.serve(lambda: polls.serve(lambda: order.append("second")))
    while not order:
        await asyncio.sleep(0)
    assert order == ["second"]


async def test_failed_long_poll_does_not_delay_others() -> None:
    polls = LongPolls(Random(1))
    order: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: failures.append(context["exception"])
    )

    def fail() -> None:
        raise IndexError

    polls.serve(fail)
    polls.serve(lambda: order.append("served"))
    while not order:
        await asyncio.sleep(0)
    assert order == ["served"]
    assert isinstance(failures[0], IndexError)
