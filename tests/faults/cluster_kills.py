"""`kill -9` of brokers of a cluster under load, at random moments: mostly one, sometimes several at a time.

While a majority is in sync, writes go on; with fewer they stop, and go on when those that were killed are back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from load import Verdict, under_load

from cluster_processes import ClusterProcesses

TOPIC = "kills"
LONGEST_LIFE_S = 1.5
LONGEST_DEATH_S = 2.0
SETTINGS = (
    ("durability=auto", "event.loop=uvloop"),
    ("durability=os", "event.loop=asyncio"),
    ("durability=fsync", "event.loop=uvloop"),
)


@dataclass(slots=True)
class ClusterKills:
    """One cluster through its cycles."""

    cluster: ClusterProcesses
    source: random.Random
    pauses_s: list[float]
    """How long all writers waited for an acknowledgement, after one broker of a healed cluster was killed."""

    def victims(self) -> list[int]:
        brokers = list(self.cluster.brokers)
        count = self.source.choices([1, 2, len(brokers)], [0.75, 0.15, 0.1])[0]
        return self.source.sample(brokers, count)

    def life_and_death(self, wait_for_more: Callable[[], float]) -> None:
        victims = self.victims()
        healed = self.source.random() < 0.5
        if healed:
            self.cluster.wait_until_healed()
        time.sleep(self.source.random() * LONGEST_LIFE_S)
        self.cluster.kill_brokers(victims)
        if healed and len(victims) == 1:
            self.pauses_s.append(wait_for_more())
        time.sleep(self.source.random() * LONGEST_DEATH_S)
        self.source.shuffle(victims)
        self.cluster.start_brokers(victims)
        if self.source.random() < 0.5:
            wait_for_more()


def run_cluster_block(
    directory: Path, seed: int, cycles: int, say: Callable[[str], None], size: int = 3
) -> tuple[Verdict, list[float]]:
    """Kill and start again, `cycles` times; then heal, read everything, stop and compare."""
    source = random.Random(seed)
    cluster = ClusterProcesses(directory, size, source.choice(SETTINGS))
    try:
        cluster.start()
        # Small segments, so that kills meet rolls as well as appends.
        with under_load(cluster, TOPIC, config={"segment.bytes": str(1 << 20)}) as load:
            kills = ClusterKills(cluster, source, [])
            for cycle in range(cycles):
                say(f"seed {seed}: cycle {cycle + 1} of {cycles}")
                kills.life_and_death(lambda: load.wait_for_more(1))
            return load.judge(), kills.pauses_s
    finally:
        cluster.close()
