"""Kill drivers, tasks and brokers under the streaming sink of a real Spark, with new rows before each run,
and check the rows at the end: `make pipeline-crashes`, most of an hour on two cores. `--cases N` runs N
cases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from archive_helpers import digest
from confluent_kafka import Producer
from process_sessions import kill_session
from sink_helpers import committed, new_topic

from support.cluster_processes import ClusterProcesses

HERE = Path(__file__).resolve().parent
PATIENCE_S = 600.0
ROWS = 300
LATEST_DRIVER, LATEST_TASK = 40, 16
"""Upper bound of the requests that a driver or task sends in one batch."""
BROKER_DEATH_S = 4.0


@dataclass(frozen=True, slots=True)
class Plan:
    who: str
    at: int
    is_sent: bool = False
    api: int | None = None


class Runs:
    """Runs of one query, each in a process session of its own."""

    def __init__(self, bootstrap: str, source: str, target: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._topics = (source, target)
        self._directory = directory
        self._deaths = directory / "deaths"
        self._deaths.mkdir(parents=True)
        self.checkpoint = directory / "checkpoint"

    def run(self, *plans: Plan) -> bool:
        """Run the query with these deaths, in order. Returns whether it completed."""
        for place, plan in enumerate(plans):
            (self._deaths / f"{place}.json").write_text(json.dumps(asdict(plan)))
        with (self._directory / "query.log").open("ab") as log:
            command = [sys.executable, str(HERE / "sink_query.py"), self._bootstrap, *self._topics]
            process = subprocess.Popen(
                [*command, str(self.checkpoint)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PENSTOCK_DEATHS": str(self._deaths), "PYTHONPATH": _path()},
            )
        try:
            return process.wait(PATIENCE_S) == 0
        finally:
            kill_session(process.pid)
            process.wait()

    def deaths(self) -> int:
        """Number of planned deaths that have happened since the last call. Removes the others."""
        died = [*self._deaths.glob("*.died")]
        for path in self._deaths.iterdir():
            path.unlink()
        return len(died)

    def log_tail(self) -> str:
        return (self._directory / "query.log").read_text(errors="replace")[-6000:]


def feed(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"k%d" % number)
    assert producer.flush(60) == 0


def _path() -> str:
    return os.pathsep.join(filter(None, [str(HERE / "armed"), str(HERE), os.environ.get("PYTHONPATH")]))


def _plans() -> list[Plan]:
    """Deaths of drivers and tasks in turn, shuffled so that the first few are a sample of all."""
    drivers = [Plan("driver", at, is_sent) for at in range(1, LATEST_DRIVER) for is_sent in (False, True)]
    tasks = [Plan("task", at, is_sent) for at in range(1, LATEST_TASK) for is_sent in (False, True)]
    drivers = [drivers[place * 31 % len(drivers)] for place in range(len(drivers))]
    tasks = [tasks[place * 7 % len(tasks)] for place in range(len(tasks))]
    rest = drivers[len(tasks) :]
    return [plan for pair in zip(drivers, tasks, strict=False) for plan in pair] + rest


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=len(_plans()))
    cases = parser.parse_args(arguments).cases
    with tempfile.TemporaryDirectory(prefix="penstock-sink-") as directory:
        cluster = ClusterProcesses(Path(directory))
        try:
            cluster.start()
            return _try_out(cluster, Path(directory) / "query", cases)
        finally:
            cluster.close()


def _try_out(cluster: ClusterProcesses, directory: Path, cases: int) -> int:
    source = new_topic(cluster.bootstrap, 2, 3)
    target = new_topic(cluster.bootstrap, 2, 3)
    runs = Runs(cluster.bootstrap, source, target, directory)
    fed = deaths = 0
    for number, plan in enumerate(_plans()[:cases]):
        feed(cluster.bootstrap, source, range(fed, fed + ROWS))
        fed += ROWS
        with_failover = number % 3 == 2
        if with_failover:
            killer = threading.Thread(target=_fail_over, args=(cluster, target))
            killer.start()
        is_over = runs.run(plan)
        if with_failover:
            killer.join()
        came = runs.deaths()
        deaths += came
        print(f"{number} {plan} died={bool(came)} over={is_over} broker={with_failover}", flush=True)
    assert runs.run(), runs.log_tail()
    found = committed(cluster.bootstrap, target)
    wanted = [str(number) for number in range(fed)]
    is_right = len(found) == fed and digest(map(str.encode, found)) == digest(map(str.encode, wanted))
    print(f"{deaths} deaths, {fed} rows, {len(found)} found: {'each once' if is_right else 'WRONG'}")
    return 0 if is_right else 1


def _fail_over(cluster: ClusterProcesses, topic: str) -> None:
    time.sleep(BROKER_DEATH_S)
    victim = cluster.leader(topic)
    cluster.kill_brokers([victim])
    time.sleep(BROKER_DEATH_S)
    cluster.start_brokers([victim])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
