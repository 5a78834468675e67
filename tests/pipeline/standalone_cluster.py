"""Pipeline jobs on a standalone Spark with a master and two workers on this machine: `make spark-cluster`.

Runs a continuous archiver, a query over archive and log, and a replay, and checks each result.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyspark
from archive_helpers import digest, make, numbers, produce, read_topic, rows

from penstock.pipeline.java import java_home
from penstock.testing.process import BrokerProcess, free_ports
from support.eventually import eventually

WORKERS = 2
RECORDS = 500
WAIT_SECONDS = 600.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as directory, ExitStack() as stack:
        os.environ |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_HOME": java_home(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": directory,
        }
        broker = BrokerProcess(Path(directory))
        broker.start()
        stack.callback(broker.kill)
        os.environ["PENSTOCK_BOOTSTRAP"] = broker.bootstrap
        master = _start_spark(stack)
        return _try_out(broker.bootstrap, Path(directory) / "archive", master)


def _start_spark(stack: ExitStack) -> str:
    port, ui_port = free_ports(2)
    place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)]
    _daemon(stack, "org.apache.spark.deploy.master.Master", *place)
    eventually(lambda: _answers(port), "the master answers", within_s=WAIT_SECONDS)
    for _ in range(WORKERS):
        _daemon(
            stack,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "-c", "1", "-m", "1500m", f"spark://127.0.0.1:{port}"),
        )
    return f"spark://127.0.0.1:{port}"


def _daemon(stack: ExitStack, *arguments: str) -> None:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)


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


def _answers(port: int) -> bool:
    """Wait until the port of the Spark master accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
