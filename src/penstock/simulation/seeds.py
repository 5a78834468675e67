"""What a seed stands for: a broker alone, or a whole cluster."""

from __future__ import annotations

from penstock.simulation.cluster_scenario import ClusterScenario
from penstock.simulation.running import Report, Sink, run
from penstock.simulation.scenario import BrokerScenario


def run_seed(seed: int, sink: Sink | None = None) -> Report:
    """A broker alone; see `run`."""
    return run(BrokerScenario, seed, sink)


def run_cluster_seed(seed: int, sink: Sink | None = None) -> Report:
    return run(ClusterScenario, seed, sink)
