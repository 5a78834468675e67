"""`kill -9` of brokers of a cluster under load, at random moments: usually one, sometimes several at a time.

While a majority is in sync, writes continue; with fewer replicas they stop until killed brokers are back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kill_block import SETTINGS, BlockResult
from load import under_load

from support.cluster_processes import ClusterProcesses

TOPIC = "kills"
LONGEST_LIFE_S = 1.5
LONGEST_DEATH_S = 2.0


@dataclass(slots=True)
class ClusterKills:
    """A cluster during the cycles of one block."""

    cluster: ClusterProcesses
    source: random.Random
    longest_pause_s: float = 0.0

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
            self.longest_pause_s = max(self.longest_pause_s, wait_for_more())
        time.sleep(self.source.random() * LONGEST_DEATH_S)
        self.source.shuffle(victims)
        if self.source.random() < 0.2:
            # The next kill may hit brokers that are still starting.
            for victim in victims:
                self.cluster.brokers[victim].spawn()
            return
        self.cluster.start_brokers(victims)
        if self.source.random() < 0.5:
            wait_for_more()


def run_cluster_block(
    directory: Path, seed: int, cycles: int, say: Callable[[str], None], size: int = 3
) -> BlockResult:
    """Kill and restart `cycles` times; then wait until all replicas are in sync, read everything, stop and
    compare.
    """
    source = random.Random(seed)
    cluster = ClusterProcesses(directory, size, source.choice(SETTINGS))
    try:
        cluster.start()
        # Small segments, so that kills hit segment rolls as well as appends.
        with under_load(cluster, TOPIC, config={"segment.bytes": str(1 << 20)}) as load:
            kills = ClusterKills(cluster, source)
            for cycle in range(cycles):
                say(f"seed {seed}: cycle {cycle + 1} of {cycles}")
                kills.life_and_death(lambda: load.wait_for_more(1))
            verdict = load.judge()
            return BlockResult(
                cycles, verdict.acknowledged, verdict.stored, verdict.violations, kills.longest_pause_s
            )
    finally:
        cluster.close()
