"""The pipeline on Spark: a topic to a null sink and to an archive, beside Spark's own Kafka connector on
Kafka.

Each side has a warm session with two cores and reads its own broker. The connector writes Parquet; Penstock
writes the archive, a Delta table with statistics and exactly once.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.comparison import KAFKA, Bar, Metric, Row, row_of
from bench.context import Context
from bench.driver import Figures
from bench.kafka_install import BUILD
from bench.measure import MB
from bench.scenarios.consume import BATCHES
from bench.scenarios.produce import PARTITIONS, measure_produce
from bench.spark_install import spark_connector
from bench.spark_jobs import SparkJobs, timed
from bench.target import Target
from bench.topics import topic

RATE = Metric("records_per_s", "rate", "records/s", Bar("ratio", "at least", 1.5))
BESIDE = (
    Metric("mb_per_s", "rate", "MB/s"),
    Metric("cpu_s", "Spark's CPU", "s"),
    Metric("workers_mb", "Spark's Python workers, most", "MB"),
)
ARCHIVE_BAR = Bar("value", "at least", 150)


def to_nowhere_and_archive(context: Context) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers = stack.enter_context(context.servers())
        scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=BUILD / "bench"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        sessions = {server.name: stack.enter_context(session(server, scratch)) for server in servers}
        for size, count in (
            (1_024, context.scaled(2_000_000, 500_000)),
            (100, context.scaled(8_000_000, 2_000_000)),
        ):
            with ExitStack() as topics:
                names = {server.name: topics.enter_context(topic(server, PARTITIONS)) for server in servers}
                for server in servers:
                    context.say(f"pipeline: loading {server.name}")
                    measure_produce(
                        server, names[server.name], {"count": count, "size": size, "config": BATCHES}
                    )
                rows += _compare(context, servers, sessions, names, size, count, scratch)
        rows.append(_empty_increment(context, servers[0], scratch))
    return rows


def session(server: Target, scratch: Path) -> SparkJobs:
    if server.name == KAFKA:
        return SparkJobs.of_the_connector(spark_connector(), scratch / "connector.log")
    return SparkJobs.ours(scratch / "ours.log")


def _compare(
    context: Context,
    servers: Sequence[Target],
    sessions: Mapping[str, SparkJobs],
    names: Mapping[str, str],
    size: int,
    count: int,
    scratch: Path,
) -> list[Row]:
    rows: list[Row] = []
    for goal in ("nowhere", "archive"):

        def measure(server: Target, goal: str = goal) -> Figures:
            target = str(scratch / f"target-{server.name}") if goal == "archive" else ""
            figures = sessions[server.name].run(
                bootstrap=server.bootstrap, topic=names[server.name], target=target
            )
            rate = count / figures["seconds"]
            return {**figures, "records_per_s": rate, "mb_per_s": rate * size / MB}

        metrics = [RATE, *BESIDE]
        if goal == "archive" and size > 1_000:
            metrics[1] = Metric("mb_per_s", "rate", "MB/s", ARCHIVE_BAR)
        rows += context.compare(f"pipeline {size} B to {goal}", metrics, servers, measure)
    return rows


def _empty_increment(context: Context, server: Target, scratch: Path) -> Row:
    """Seconds of an archive command without new records; it does not start Spark."""
    context.say("pipeline: an empty increment")
    with topic(server, PARTITIONS) as name:
        measure_produce(server, name, {"count": 10_000, "size": 100, "config": BATCHES})
        command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "archive", "--once"]
        command += ["--bootstrap", server.bootstrap, "--topics", name, "--to", str(scratch / "empty")]
        first = timed(command)
        times = [timed(command) for _ in range(context.rounds)]
    context.say(f"pipeline: the first increment took {first:.1f} s, start of Spark included")
    return row_of("pipeline archive --once, nothing new", Metric("s", "time", "s"), {server.name: times})
