"""A small simulated world for the tests of its parts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from simulation.machine.disk import SimulatedDisk
from simulation.machine.loop import SimulationLoop, new_loop
from simulation.machine.trace import Trace


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    loop = new_loop()
    yield loop
    loop.close()
    assert loop.unhandled == []


@pytest.fixture
def trace(loop: SimulationLoop) -> Trace:
    return Trace(loop.time)


@pytest.fixture
def disk(trace: Trace) -> SimulatedDisk:
    return SimulatedDisk(random.Random(1), trace)
