"""Faults of single machines in the simulation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from simulation.faults.machine_faults import MachineFaults
from simulation.machine.network import SimulatedNetwork
from simulation.scenarios.store_host import STORE_HOST

if TYPE_CHECKING:
    from simulation.machine.loop import SimulationLoop
    from simulation.machine.trace import Trace


class _Named:
    """A broker of which only the host's name is known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = self


def test_connection_to_a_store_process_loses_no_packets(loop: SimulationLoop, trace: Trace) -> None:
    """A broker that hears nothing of the end of its session would wait for ever, and a Unix socket is never silent."""
    network = SimulatedNetwork(loop, random.Random(1), trace)
    broker: Any = _Named("broker-1")

    async def scenario() -> None:
        for peer in (STORE_HOST, "broker-2", "broker-3"):
            await network.host(peer).listen("", 1, lambda _: True)
            await network.host(broker.name).connect(peer, 1)
        faults = MachineFaults(network, random.Random(1), ())
        for _ in range(50):
            await faults.drop_connection(broker)
        dropped = {stream.hosts[1] for stream in network.streams() if stream.is_dropped}
        assert dropped == {"broker-2", "broker-3"}

    loop.run_until_complete(scenario())
