"""What a seed stands for: a broker alone, or a whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.simulation.cluster_scenario import ClusterScenario
from penstock.simulation.loop import SimulationLoop
from penstock.simulation.running import Report, Sink, run
from penstock.simulation.scenario import BrokerScenario
from penstock.simulation.trace import Trace

BROKER, CLUSTER = "broker", "cluster"


def run_seed(seed: int, sink: Sink | None = None) -> Report:
    """A broker alone; see `run`."""
    return run(BrokerScenario, seed, sink)


def run_cluster_seed(seed: int, sink: Sink | None = None) -> Report:
    return run(ClusterScenario, seed, sink)


def cluster_traits(seed: int) -> frozenset[str]:
    """See `ClusterScenario.traits`; nothing is run."""
    loop = SimulationLoop()  # type: ignore[abstract]
    return ClusterScenario(seed, loop, Trace(loop.time)).traits


KINDS: Mapping[str, Callable[[int, Sink | None], Report]] = {BROKER: run_seed, CLUSTER: run_cluster_seed}
