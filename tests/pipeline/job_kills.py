"""Kill jobs of a real Spark, or one of their tasks, at random moments: `make job-cycles`.

Each cycle writes new records, starts `penstock pipeline archive`, `replay`, `compact` or `stats` and kills
it. The first run of each job and every fifth one are undisturbed, to measure the duration. After every job
the tables are complete; at the end each record is there, and counted, once. Options: `--cycles N`, `--seed
N`, `--storage local|hdfs|s3`.
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
from storage_servers import NAMES, storage

from penstock.testing.process import BrokerProcess

RECORDS = 2_000
STEP_MS = 60_000
"""Time between records in milliseconds: short enough that hundreds of cycles stay in the past, as brokers
require.
"""
WAIT_SECONDS = 600.0
DEFAULT_RETENTION_MS = "1209600000"
EARLIEST, LATEST = 0.3, 1.1
"""Moment of the fault, as a fraction of the duration of the job. Earlier, Spark is still starting."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--storage", choices=NAMES, default="local")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="penstock-jobs-") as directory:
        broker = BrokerProcess(Path(directory))
        broker.start()
        try:
            with storage(arguments.storage, Path(directory)) as root:
                tables = Tables(broker.bootstrap, root, Path(directory) / "checkpoint")
                return _cycles(broker, tables, arguments.cycles, chance)
        finally:
            broker.kill()


def _cycles(broker: BrokerProcess, tables: Tables, cycles: int, chance: random.Random) -> int:
    bootstrap = broker.bootstrap
    make(bootstrap, "source", archive_required="true", retention_ms=DEFAULT_RETENTION_MS)
    make(bootstrap, "counted")
    make(bootstrap, "target", retention_ms=DEFAULT_RETENTION_MS)
    make(bootstrap, "counts", 1)
    jobs = tables.jobs()
    usual: dict[str, float] = {}
    for cycle in range(cycles):
        for topic in ("source", "counted"):
            produce(bootstrap, topic, range(tables.written, tables.written + RECORDS), step_ms=STEP_MS)
        tables.written += RECORDS
        job = jobs[cycle % len(jobs)]
        name = job[0]
        if name not in usual or cycle % 5 == 4:
            usual[name] = _leave_alone(bootstrap, job)
            ending = f"left alone, {usual[name]:.0f} s"
        else:
            moment = usual[name] * chance.uniform(EARLIEST, LATEST)
            if chance.random() < 0.2:
                ending = _kill_broker(broker, job, moment)
            else:
                ending = _kill_job(bootstrap, job, moment, chance)
        print(f"{cycle} {name} {ending}; {tables.check_whole()}", flush=True)
    for job in jobs:
        _leave_alone(bootstrap, job)
    return 0 if tables.are_right() else 1


def _kill_broker(broker: BrokerProcess, job: list[str], moment: float) -> str:
    process = _start(broker.bootstrap, job)
    time.sleep(moment)
    broker.kill()
    broker.start()
    return f"broker killed after {moment:.0f} s, ended {process.wait(WAIT_SECONDS)}"


def _kill_job(bootstrap: str, job: list[str], moment: float, chance: random.Random) -> str:
    process = _start(bootstrap, job)
    time.sleep(moment)
    workers = [each for each in _family(process.pid) if "pyspark.daemon" in _command(each)]
    if workers and chance.random() < 0.5:
        _kill(chance.choice(workers))
        return f"a task killed after {moment:.0f} s, ended {process.wait(WAIT_SECONDS)}"
    for each in [process, *_family(process.pid)]:
        _kill(each)
    ended = process.wait()
    return f"killed after {moment:.0f} s" if ended < 0 else f"over before {moment:.0f} s, ended {ended}"


def _leave_alone(bootstrap: str, job: list[str]) -> float:
    """Duration of an undisturbed run in seconds."""
    began = time.monotonic()
    process = _start(bootstrap, job)
    assert process.wait(WAIT_SECONDS) == 0, f"{job[0]} failed"
    return time.monotonic() - began


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
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _kill(process: psutil.Process | subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
