"""Overheads of the pipeline on Spark: small micro-batches, and values as JSON that become typed columns of an archive.

Each side has a warm session with two cores and reads its own broker. The connector parses with `from_json` and writes
Parquet; Penstock writes the typed archive.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures
from bench.kafka_install import BUILD
from bench.scenarios.pipeline import session
from bench.scenarios.produce import PARTITIONS
from bench.spark_jobs import SparkJobs
from bench.target import Target
from bench.topics import topic

BATCHES, BATCH_ROWS = 30, 20
SCHEMA = "id bigint, customer string, total double, paid boolean, items array<string>"
BATCH_TIME = Metric("batch_ms", "micro-batch", "ms", Bar("ratio", "at most", 1.0))
TYPED_RATE = Metric("records_per_s", "rate", "records/s", Bar("ratio", "at least", 1.2))


def small_batches_and_typed_values(context: Context) -> list[Row]:
    count = context.scaled(2_000_000, 300_000)
    with ExitStack() as stack:
        servers = stack.enter_context(context.servers())
        scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=BUILD / "bench"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        sessions = {server.name: stack.enter_context(session(server, scratch)) for server in servers}
        small = {server.name: stack.enter_context(topic(server, PARTITIONS)) for server in servers}
        large = {server.name: stack.enter_context(topic(server, PARTITIONS)) for server in servers}
        for server in servers:
            context.say(f"pipeline: loading {server.name}")
            _load(server, small[server.name], BATCHES * BATCH_ROWS)
            _load(server, large[server.name], count)
        return [
            *_batches(context, servers, sessions, small, scratch),
            *_typed(context, servers, sessions, large, count, scratch),
        ]


def _load(server: Target, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(count):
        order = {"id": number, "customer": f"customer {number % 1000}", "total": number / 8, "paid": True}
        value = json.dumps({**order, "items": ["bread", "milk"]})
        while True:
            try:
                producer.produce(name, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(300):
        raise RuntimeError(f"{server.name} did not take all orders")


def _batches(
    context: Context,
    servers: Sequence[Target],
    sessions: Mapping[str, SparkJobs],
    names: Mapping[str, str],
    scratch: Path,
) -> list[Row]:
    def measure(server: Target) -> Figures:
        target = str(scratch / f"checkpoint-{server.name}")
        return sessions[server.name].run(
            bootstrap=server.bootstrap, topic=names[server.name], target=target, batch_rows=BATCH_ROWS
        )

    return context.compare("pipeline, small micro-batches", [BATCH_TIME], servers, measure)


def _typed(
    context: Context,
    servers: Sequence[Target],
    sessions: Mapping[str, SparkJobs],
    names: Mapping[str, str],
    count: int,
    scratch: Path,
) -> list[Row]:
    def measure(server: Target) -> Figures:
        target = str(scratch / f"typed-{server.name}")
        figures = sessions[server.name].run(
            bootstrap=server.bootstrap, topic=names[server.name], target=target, schema=SCHEMA
        )
        return {**figures, "records_per_s": count / figures["seconds"]}

    return context.compare("pipeline, typed JSON to archive", [TYPED_RATE], servers, measure)
