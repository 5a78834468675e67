"""Clean restarts of the brokers of a cluster, one after the other, under idempotent and transactional load.

`make rolling-restarts CYCLES=100` runs this file in blocks of restarts, each checked at its end; an
interrupted run continues with the next block. Writers pipeline batches to several partitions, and copiers
move messages in transactions. At the end no message is lost or duplicated in either topic.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from copiers import SETTINGS as COPIER_SETTINGS
from copiers import Experiment
from kill_block import SETTINGS, BlockResult, run_blocks
from load import under_load

from support.cluster_processes import PATIENCE_S, ClusterProcesses

TOPIC = "restarts"
PARTITIONS = 6
COPIERS = 2
RESTARTS_A_BLOCK = 25
LONGEST_LIFE_S = 1.0
LONGEST_AWAY_S = 0.5


class Copying:
    """Copiers in a thread, until `finish`."""

    def __init__(self, cluster: ClusterProcesses, directory: Path) -> None:
        self._experiment = Experiment(cluster, directory, copiers=COPIERS)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copying", daemon=True)
        self._failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> list[str]:
        """Violations in the copied topic; empty if there are none."""
        self._stop()
        if not self._failures:
            self._check(self._experiment.finish)
        self._experiment.close()
        return self._failures

    def abandon(self) -> None:
        self._stop()
        self._experiment.close()

    def _stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._failures:
            self._check(lambda: self._experiment.copy_for(0.1))

    def _check(self, work: Callable[[], object]) -> None:
        try:
            work()
        except AssertionError as error:
            self._failures.append(f"copying: {error}")


def run_restart_block(
    directory: Path, seed: int, restarts: int, say: Callable[[str], None], size: int = 3
) -> BlockResult:
    """Restart the brokers in turn, this many times; then read everything, stop and compare."""
    source = random.Random(seed)
    cluster = ClusterProcesses(directory, size, (*source.choice(SETTINGS), *COPIER_SETTINGS))
    longest_pause_s = 0.0
    try:
        cluster.start()
        copying = Copying(cluster, directory)
        try:
            copying.start()
            with under_load(cluster, TOPIC, PARTITIONS) as load:
                cluster.wait_until_healed()
                for restart in range(restarts):
                    number = restart % size + 1
                    say(f"seed {seed}: restart {restart + 1} of {restarts}, broker {number}")
                    time.sleep(source.random() * LONGEST_LIFE_S)
                    cluster.brokers[number].stop()
                    longest_pause_s = max(longest_pause_s, load.wait_for_more(1))
                    time.sleep(source.random() * LONGEST_AWAY_S)
                    cluster.start_brokers([number])
                    cluster.wait_until_healed()
                violations = copying.finish()
                verdict = load.judge()
        except BaseException:
            copying.abandon()
            raise
        return BlockResult(
            restarts,
            verdict.acknowledged,
            verdict.stored,
            (*violations, *verdict.violations),
            longest_pause_s,
        )
    finally:
        cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=Path("build/rolling-restarts"))
    options = parser.parse_args()
    return run_blocks(
        run_restart_block, options.state, options.cycles, RESTARTS_A_BLOCK, options.seed, "restarts"
    )


if __name__ == "__main__":
    sys.exit(main())
