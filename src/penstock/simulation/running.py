"""Running one seed: a loop of its own, a trace of all that happens, and a report at the end.

The garbage collector is off meanwhile: a collection at another moment in another run could run finalizers in another
order.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.simulation.host import SimulatedWorld
from penstock.simulation.loop import SimulationLoop
from penstock.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    digest: str
    """Equal for every run of the seed."""
    events: int
    operations: int
    starts: int
    virtual_seconds: float


class Scenario(Protocol):
    async def run(self) -> Report: ...


Sink = Callable[[str], None]


def run(
    scenario: Callable[[int, SimulationLoop, Trace], Scenario], seed: int, sink: Sink | None = None
) -> Report:
    """InvariantViolated, or whatever else went wrong, when the seed fails; `sink` takes the trace's lines."""
    shuffle = SimulatedWorld.random_of(seed, "loop")
    loop = SimulationLoop(shuffle if shuffle.random() < 0.5 else None)  # type: ignore[abstract]
    trace = Trace(loop.time, sink)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return loop.run_until_complete(scenario(seed, loop, trace).run())
    finally:
        trace.close()
        loop.close()
        if was_collecting:
            gc.enable()
