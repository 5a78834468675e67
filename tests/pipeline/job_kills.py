"""Kills archivers and replays of a real Spark, whole or one of their tasks, at random moments: `make job-cycles`.

Each cycle writes new records, starts `penstock pipeline archive` or `replay` and kills it; every fifth is left alone.
At the end archive and target hold every record once. `--cycles N`, `--seed N`.
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
from archive_helpers import digest, make, produce, read_topic, rows

from penstock.testing.process import BrokerProcess

RECORDS = 2_000
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
    bootstrap, place = broker.bootstrap, directory / "archive"
    make(bootstrap, "source", archive_required="true")
    make(bootstrap, "target")
    archive = ["archive", "--topics", "source", "--to", str(place), "--truncate", "--grace", "0s"]
    replay = ["replay", "--topics", "source", "--archive", str(place), "--to", "target", "--name", "kills"]
    written = 0
    for cycle in range(cycles):
        produce(bootstrap, "source", range(written, written + RECORDS))
        written += RECORDS
        job = replay if cycle % 2 and place.exists() else archive
        if cycle % 5 == 4:
            _leave_alone(bootstrap, job)
            print(f"{cycle} {job[0]} left alone", flush=True)
        elif chance.random() < 0.2:
            process = _start(bootstrap, job)
            time.sleep(chance.uniform(0, LONGEST_SECONDS))
            broker.kill()
            broker.start()
            process.wait(PATIENCE_SECONDS)
            print(f"{cycle} {job[0]} broker killed, ended {process.returncode}", flush=True)
        else:
            print(f"{cycle} {job[0]} {_kill_one(bootstrap, job, chance)}", flush=True)
    for job in (archive, replay):
        _leave_alone(bootstrap, job)
    wanted = digest(b"value %d" % number for number in range(written))
    archived = [row["value"] for row in rows(place)]
    replayed = [b"value %d" % record.number for record in read_topic(bootstrap, "target")]
    for name, found in (("archive", archived), ("target", replayed)):
        is_right = len(found) == written and digest(found) == wanted
        print(f"{name}: {len(found)} of {written} records, {'each once' if is_right else 'WRONG'}")
        if not is_right:
            return 1
    return 0


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
