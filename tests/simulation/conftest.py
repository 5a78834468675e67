"""A small simulated world for the tests of its parts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from penstock.simulation.machine.disk import SimulatedDisk
from penstock.simulation.machine.loop import SimulationLoop
from penstock.simulation.machine.trace import Trace


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    loop = SimulationLoop()
    yield loop
    loop.close()
    assert loop.unhandled == []


@pytest.fixture
def trace(loop: SimulationLoop) -> Trace:
    return Trace(loop.time)


@pytest.fixture
def disk(trace: Trace) -> SimulatedDisk:
    return SimulatedDisk(random.Random(1), trace)
