"""The kinds of seeds, a broker alone and a cluster, and how one seed is run.

A run has a loop of its own and a trace of all that happens. The garbage collector is off meanwhile: a
collection at another moment in another run could run finalizers in another order.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop, new_loop
from simulation.machine.trace import Trace
from simulation.scenarios.broker_scenario import BrokerScenario
from simulation.scenarios.cluster_scenario import ClusterScenario
from simulation.scenarios.scenario import Report, Scenario

BROKER, CLUSTER = "broker", "cluster"

Sink = Callable[[str], None]
"""Takes the lines of a trace."""


def run_seed(seed: int, sink: Sink | None = None) -> Report:
    """Run a seed of a broker alone; InvariantViolated, or whatever else went wrong, when it fails."""
    return _run(BrokerScenario, seed, sink)


def run_cluster_seed(seed: int, sink: Sink | None = None) -> Report:
    """Run a seed of a cluster; as `run_seed`."""
    return _run(ClusterScenario, seed, sink)


def traits_of(kind: str, seed: int) -> frozenset[str]:
    """The traits of a seed, without a run of it."""
    loop = new_loop()
    scenario = BrokerScenario if kind == BROKER else ClusterScenario
    return scenario(seed, loop, Trace(loop.time)).traits


KINDS: Mapping[str, Callable[[int, Sink | None], Report]] = {BROKER: run_seed, CLUSTER: run_cluster_seed}


def _run(
    scenario: Callable[[int, SimulationLoop, Trace], Scenario], seed: int, sink: Sink | None = None
) -> Report:
    shuffle = SimulatedWorld.random_of(seed, "loop")
    loop = new_loop(shuffle if shuffle.random() < 0.5 else None)
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
