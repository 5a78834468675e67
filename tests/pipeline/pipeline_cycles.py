"""Three declared pipelines under load, with `kill -9` of every process: `make pipeline-cycles`.

One pipeline archives, one cleans orders to a topic and a table with bad rows to a dead-letter topic, one counts orders
in windows. A producer writes orders all the time. At the end an oracle reads everything: each good order once in table
and topic, each bad one once in the dead-letter topic, each record once in the archive, and each window with the figures
that the log gives. Options: `--minutes N`, `--seed N`, `--master URL`, `--standalone` (a standalone Spark with two
workers, whose executors are killed too).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from archive_helpers import make, rows
from confluent_kafka import Producer
from declared_helpers import messages
from deltalake import DeltaTable
from standalone_spark import StandaloneSpark

from penstock.testing.process import BrokerProcess
from support.eventually import eventually

WAIT_SECONDS = 900.0
WINDOW_MS = 10_000
BAD_EVERY = 20
FILE = """
pipelines:
  - name: archive
    source: {{topics: [orders]}}
    schema: id bigint not null, total double
    target: {{archive: {directory}/archive}}
    schedule: {{every: 5s}}
  - name: clean
    source: {{topics: [orders]}}
    schema: id bigint not null, total double
    transform: {{sql: "select key, id, total * 2 as total from source"}}
    dead_letter: bad
    target: {{topic: clean, table: {directory}/clean}}
    schedule: continuous
  - name: windows
    source: {{topics: [orders]}}
    schema: id bigint not null, total double
    transform:
      sql: >
        select window.start as start, count(*) as orders, sum(id) as ids
        from source group by window(timestamp, '{seconds} seconds')
      watermark: {{column: timestamp, delay: 30s}}
    target: {{table: {directory}/windows, chart: {directory}/windows.png}}
    schedule: {{every: 10s}}
"""


class Load(threading.Thread):
    """Producer of orders with consecutive ids, of which one in BAD_EVERY is bad."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self.is_over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        while not self.is_over.wait(0.05):
            for _ in range(10):
                self.send(producer)
        assert producer.flush(300) == 0

    def send(self, producer: Producer) -> None:
        is_bad = self.sent % BAD_EVERY == 0
        value = b"bad %d" % self.sent if is_bad else json.dumps({"id": self.sent, "total": 1.5}).encode()
        producer.produce("orders", value, str(self.sent % 10).encode())
        producer.poll(0)
        self.sent += 1


class Supervisors:
    """Supervisor that is started again after each kill."""

    def __init__(self, bootstrap: str, directory: Path, master: str | None) -> None:
        self._command = [
            sys.executable,
            "-m",
            "penstock.cli.main",
            "pipeline",
            "serve",
            "--bootstrap",
            bootstrap,
        ]
        self._command += ["--checkpoints", str(directory / "checkpoints")]
        self._command += ["--master", master] if master else []
        self._log = (directory / "supervisor.log").open("ab")
        self.process = self._start()

    def ensure(self) -> None:
        if self.process.poll() is not None:
            self.process = self._start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_SECONDS)

    def family(self, part: str) -> list[psutil.Process]:
        """Processes below the supervisor whose command line has this part."""
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.process.pid).children(recursive=True)
            return [each for each in found if any(part in word for word in _command(each))]
        return []

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=self._log, stderr=self._log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pause", type=float, default=45, help="Most seconds between two kills.")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--master")
    parser.add_argument(
        "--standalone", action="store_true", help="Start a standalone Spark with two workers."
    )
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-cycles-") as name, ExitStack() as stack:
        directory = Path(name)
        spark = StandaloneSpark(directory, stack) if arguments.standalone else None
        if spark is not None:
            arguments.master = spark.master
            print(f"the second worker has a disk of its own: {spark.has_private_disk}", flush=True)
        broker = BrokerProcess(directory)
        broker.start()
        try:
            return _run(broker, directory, arguments, spark)
        finally:
            broker.kill()


def _run(
    broker: BrokerProcess, directory: Path, arguments: argparse.Namespace, spark: StandaloneSpark | None
) -> int:
    bootstrap, chance = broker.bootstrap, random.Random(arguments.seed)
    for topic in ("orders", "clean", "bad"):
        make(bootstrap, topic, 2)
    path = directory / "pipelines.yaml"
    path.write_text(FILE.format(directory=directory, seconds=WINDOW_MS // 1000))
    _penstock(bootstrap, "apply", str(path))
    load = Load(bootstrap)
    load.start()
    supervisors = Supervisors(bootstrap, directory, arguments.master)
    try:
        deadline, kills = time.monotonic() + arguments.minutes * 60, 0
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(arguments.pause / 3, arguments.pause))
            kills += 1
            print(
                f"kill {kills}: {_kill(supervisors, broker, spark, chance)}; {load.sent} sent, {_states(bootstrap)}",
                flush=True,
            )
            supervisors.ensure()
        load.is_over.set()
        load.join(300)
        supervisors.ensure()
        return _check(bootstrap, directory, load.sent)
    finally:
        supervisors.stop()


def _kill(
    supervisors: Supervisors, broker: BrokerProcess, spark: StandaloneSpark | None, chance: random.Random
) -> str:
    victim = chance.choice(
        ("supervisor", "driver", "java", "task", "broker", *(["executor"] if spark else []))
    )
    if victim == "broker":
        broker.kill()
        broker.start()
        return victim
    if victim == "supervisor":
        supervisors.process.kill()
        supervisors.process.wait()
        return victim
    part = {
        "driver": "supervisor.driver",
        "java": "SparkSubmit",
        "task": "pyspark.daemon",
        "executor": "CoarseGrainedExecutorBackend",
    }[victim]
    found = supervisors.family(part) + (spark.executors(part) if spark is not None else [])
    if not found:
        return f"no {victim} runs"
    with suppress(ProcessLookupError):
        os.kill(chance.choice(found).pid, signal.SIGKILL)
    return victim


def _check(bootstrap: str, directory: Path, sent: int) -> int:
    good = [number for number in range(sent) if number % BAD_EVERY]
    bad = [b"bad %d" % number for number in range(0, sent, BAD_EVERY)]
    checks: dict[str, Callable[[], bool]] = {
        "archive": lambda: len(rows(directory / "archive")) == sent,
        "table": lambda: sorted(_column(directory / "clean", "id")) == good,
        "topic": lambda: (
            sorted(json.loads(each.value())["id"] for each in messages(bootstrap, "clean")) == good
        ),
        "dead letters": lambda: sorted(each.value() for each in messages(bootstrap, "bad")) == sorted(bad),
    }
    for name, is_right in checks.items():
        eventually(lambda: _holds(is_right), f"{name} is complete", within_s=WAIT_SECONDS)  # noqa: B023
        print(f"{name}: each record once ({sent} sent)", flush=True)
    archived = rows(directory / "archive")
    assert sorted(row["id"] for row in archived if row["id"] is not None) == good
    windows = {int(row["start"].timestamp() * 1000): row for row in _rows(directory / "windows")}
    assert len(windows) == len(_rows(directory / "windows")), "a window was written twice"
    assert windows
    wanted = _windows(bootstrap)
    for start, row in windows.items():
        assert (row["orders"], row["ids"]) == wanted[start], (start, row, wanted[start])
    assert set(windows) == {start for start in wanted if start <= max(windows)}, "a window is missing"
    print(f"windows: {len(windows)} with the figures of the log", flush=True)
    return 0


def _windows(bootstrap: str) -> dict[int, tuple[int, int]]:
    """Orders and the sum of their ids by window, from the log."""
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for each in messages(bootstrap, "orders"):
        if not each.value().startswith(b"bad"):
            start = each.timestamp()[1] // WINDOW_MS * WINDOW_MS
            counts[start] += 1
            sums[start] += json.loads(each.value())["id"]
    return {start: (counts[start], sums[start]) for start in counts}


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except Exception as error:  # noqa: BLE001 - a table may not exist yet
        print(f"not yet: {error}", flush=True)
        return False


def _rows(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return found


def _column(table: Path, name: str) -> list[Any]:
    return [row[name] for row in _rows(table)]


def _states(bootstrap: str) -> str:
    found = json.loads(_penstock(bootstrap, "list", "--json"))
    return ", ".join(f"{each['name']} {each['state']} {each['status'].get('rows', 0)}" for each in found)


def _penstock(bootstrap: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", *arguments, "--bootstrap", bootstrap]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


if __name__ == "__main__":
    sys.exit(main())
