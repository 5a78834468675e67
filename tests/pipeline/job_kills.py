"""Kills jobs of a real Spark, whole or one of their tasks, at random moments: `make job-cycles`.

Each cycle writes new records, starts `penstock pipeline archive`, `replay`, `compact` or `stats` and kills it; every
fifth is left alone. Whenever a job is over the tables are whole; at the end each record is there, and counted, once.
`--cycles N`, `--seed N`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from archive_helpers import make, produce
from job_tables import Tables

from penstock.testing.process import BrokerProcess

RECORDS = 2_000
STEP_MS = 60_000
"""From each record to the next: of hundreds of cycles none lies in the future, which brokers refuse."""
LONGEST_SECONDS = 25.0
PATIENCE_SECONDS = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="penstock-jobs-") as directory:
        broker = BrokerProcess(Path(directory))
        broker.start()
        try:
            return _cycles(broker, Path(directory), arguments.cycles, chance)
        finally:
            broker.kill()


def _cycles(broker: BrokerProcess, directory: Path, cycles: int, chance: random.Random) -> int:
    bootstrap, tables = broker.bootstrap, Tables(broker.bootstrap, directory)
    for topic in ("target", "counted"):
        make(bootstrap, topic)
    make(bootstrap, "source", archive_required="true")
    make(bootstrap, "counts", 1)
    jobs = tables.jobs()
    for cycle in range(cycles):
        for topic in ("source", "counted"):
            produce(bootstrap, topic, range(tables.written, tables.written + RECORDS), step_ms=STEP_MS)
        tables.written += RECORDS
        job = jobs[cycle % len(jobs)] if tables.archive.exists() else jobs[0]
        if cycle % 5 == 4:
            _leave_alone(bootstrap, job)
            ending = "left alone"
        elif chance.random() < 0.2:
            process = _start(bootstrap, job)
            time.sleep(chance.uniform(0, LONGEST_SECONDS))
            broker.kill()
            broker.start()
            process.wait(PATIENCE_SECONDS)
            ending = f"broker killed, ended {process.returncode}"
        else:
            ending = _kill_one(bootstrap, job, chance)
        print(f"{cycle} {job[0]} {ending}; {tables.check_whole()}", flush=True)
    for job in jobs:
        _leave_alone(bootstrap, job)
    return 0 if tables.are_right() else 1


def _kill_one(bootstrap: str, job: list[str], chance: random.Random) -> str:
    process = _start(bootstrap, job)
    time.sleep(chance.uniform(1, LONGEST_SECONDS))
    workers = [each for each in _family(process.pid) if "pyspark.daemon" in _command(each)]
    if workers and chance.random() < 0.5:
        _kill(chance.choice(workers))
        process.wait(PATIENCE_SECONDS)
        return f"a task killed, ended {process.returncode}"
    for each in [*_family(process.pid), process]:
        _kill(each)
    process.wait()
    return "killed"


def _leave_alone(bootstrap: str, job: list[str]) -> None:
    process = _start(bootstrap, job)
    assert process.wait(PATIENCE_SECONDS) == 0, f"{job[0]} failed"


def _start(bootstrap: str, job: list[str]) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "pipeline",
        *job,
        "--bootstrap",
        bootstrap,
        "--once",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kill(process: psutil.Process | subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
