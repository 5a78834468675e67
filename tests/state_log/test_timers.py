from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from penstock.state_log.timers import Timers
from support.manual_clock import ManualClock


def run(scenario: Callable[[Timers, ManualClock, list[Hashable]], None]) -> None:
    async def body() -> None:
        clock, fired = ManualClock(), list[Hashable]()
        scenario(Timers(clock, fired.append), clock, fired)

    asyncio.run(body())


def test_due_keys_fire_once_and_in_order() -> None:
    def scenario(timers: Timers, clock: ManualClock, fired: list[Hashable]) -> None:
        now_ms = timers.now_ms()
        timers.schedule("late", now_ms + 30)
        timers.schedule("second", now_ms + 20)
        timers.schedule("first", now_ms + 10)
        clock.advance(25)
        timers._on_timer()
        timers._on_timer()
        assert fired == ["first", "second"]

    run(scenario)


def test_earlier_deadline_replaces_a_later_one_and_a_later_one_changes_nothing() -> None:
    def scenario(timers: Timers, clock: ManualClock, fired: list[Hashable]) -> None:
        now_ms = timers.now_ms()
        timers.schedule("g", now_ms + 30)
        timers.schedule("g", now_ms + 10)
        timers.schedule("g", now_ms + 50)
        timers.schedule("g", None)
        clock.advance(10)
        timers._on_timer()
        assert fired == ["g"]
        clock.advance(100)
        timers._on_timer()
        assert fired == ["g"]

    run(scenario)


def test_many_timers_due_together_fire_over_several_loop_turns() -> None:
    def scenario(timers: Timers, clock: ManualClock, fired: list[Hashable]) -> None:
        for number in range(250):
            timers.schedule(number, timers.now_ms())
        timers._on_timer()
        assert 0 < len(fired) < 250
        timers._on_timer()
        timers._on_timer()
        assert fired == list(range(250))

    run(scenario)


def test_error_of_one_timer_does_not_stop_others() -> None:
    async def body() -> None:
        clock, fired, done = ManualClock(), list[Hashable](), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def fire(key: Hashable) -> None:
            if key == "bad":
                raise RuntimeError
            fired.append(key)
            done.set()

        timers = Timers(clock, fire)
        timers.schedule("bad", timers.now_ms())
        timers.schedule("good", timers.now_ms())
        await asyncio.wait_for(done.wait(), 30)
        assert fired == ["good"]

    asyncio.run(body())
