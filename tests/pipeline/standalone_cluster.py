"""Pipeline jobs on a standalone Spark with a master and two workers on this machine: `make spark-cluster`.

Runs a continuous archiver, a query over archive and log, and a replay, and checks each result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from archive_helpers import digest, make, numbers, produce, read_topic, rows
from standalone_spark import WAIT_SECONDS, StandaloneSpark

from penstock.testing.process import BrokerProcess
from support.eventually import eventually

RECORDS = 500


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as directory, ExitStack() as stack:
        broker = BrokerProcess(Path(directory))
        broker.start()
        stack.callback(broker.kill)
        os.environ["PENSTOCK_BOOTSTRAP"] = broker.bootstrap
        spark = StandaloneSpark(Path(directory), stack)
        print(f"the second worker has a disk of its own: {spark.has_private_disk}")
        return _try_out(broker.bootstrap, Path(directory) / "archive", spark.master)


def _try_out(bootstrap: str, place: Path, master: str) -> int:
    make(bootstrap, "source", 4)
    make(bootstrap, "target", 4)
    produce(bootstrap, "source", range(RECORDS), 4)
    archiver = _start(
        "archive", "--topics", "source", "--to", str(place), "--every", "1s", "--master", master
    )
    for written in (RECORDS, 2 * RECORDS):
        eventually(
            partial(_has_archived, place, written),
            f"{written} records are archived",
            within_s=WAIT_SECONDS,
        )
        if written == RECORDS:
            produce(bootstrap, "source", range(RECORDS, 2 * RECORDS), 4)
    archiver.send_signal(signal.SIGINT)
    assert archiver.wait(WAIT_SECONDS) == 130
    wanted = digest(b"value %d" % number for number in range(2 * RECORDS))
    assert digest(row["value"] for row in rows(place)) == wanted
    print("archived while records came")
    produce(bootstrap, "source", range(2 * RECORDS, 2 * RECORDS + 10), 4)
    sql = "select count(*) as n, count(distinct value) as d from source"
    asking = _start("query", sql, "--archive", str(place), "--master", master, "--json", is_read=True)
    [found] = json.loads(asking.communicate(timeout=WAIT_SECONDS)[0])
    assert found == {"n": 2 * RECORDS + 10, "d": 2 * RECORDS + 10}, found
    print("asked over archive and log")
    replay = _start(
        "replay", "--topics", "source", "--archive", str(place), "--to", "target", "--master", master
    )
    assert replay.wait(WAIT_SECONDS) == 0
    assert sorted(record.number for record in read_topic(bootstrap, "target")) == list(
        range(2 * RECORDS + 10)
    )
    print("replayed")
    return 0


def _start(*arguments: str, is_read: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE if is_read else None, text=True)


def _has_archived(place: Path, count: int) -> bool:
    return _archived(place) == count


def _archived(place: Path) -> int:
    return len(numbers(rows(place))) if (place / "_delta_log").exists() else 0


if __name__ == "__main__":
    sys.exit(main())
