from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simulation.machine.clock import SimulatedClock
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.scenarios.cluster_scenario import ClusterScenario

HOUR_MS = 3_600_000


def test_both_clocks_follow_virtual_time_and_only_the_wall_clock_jumps(loop: SimulationLoop) -> None:
    clock = SimulatedClock(loop.time)
    started_ms = clock.now_ms()

    async def main() -> None:
        await asyncio.sleep(1.5)
        assert clock.now_ms() == started_ms + 1500
        clock.jump(-5000)
        assert clock.now_ms() == started_ms - 3500
        assert clock.monotonic() == 1.5

    loop.run_until_complete(main())


@pytest.mark.parametrize("cast", ["_delayed", "_schedules"])
def test_time_that_a_clock_has_shown_between_two_looks_is_known(loop: SimulationLoop, cast: str) -> None:
    """A message that is delivered just before the clock is set back is not early."""
    scenario: Any = ClusterScenario(0, loop, Trace(loop.time))
    model = getattr(scenario, cast)._model
    clock = scenario._stage.members[0].host.clock

    async def main() -> None:
        clock.jump(HOUR_MS)
        model.look()
        await asyncio.sleep(0.01)
        shown_ms = clock.now_ms()
        clock.jump(-HOUR_MS)
        await asyncio.sleep(0.01)
        model.look()
        assert model.latest_ms == shown_ms

    loop.run_until_complete(main())


def test_traces_of_equal_events_are_equal() -> None:
    def digest(*events: tuple[float, str]) -> str:
        times = iter([time for time, _ in events])
        trace = Trace(lambda: next(times))
        for _, what in events:
            trace.record("event", what, 1)
        assert trace.events == len(events)
        return trace.digest()

    assert digest((0.0, "a"), (1.0, "b")) == digest((0.0, "a"), (1.0, "b"))
    assert digest((0.0, "a"), (1.0, "b")) != digest((0.0, "b"), (1.0, "a"))
    assert digest((0.0, "a")) != digest((0.5, "a"))
