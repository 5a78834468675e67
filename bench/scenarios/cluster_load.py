"""Three brokers, replication factor 3, min.insync.replicas=2: rates and latency with acks=all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.scenarios.produce import CPU_PER_GB, CPU_PER_REQUEST, MANY_CLIENTS, measure_produce
from bench.target import Target, settle_disk
from bench.topics import topic

PARTITIONS = 6
RATE = Metric("mb_per_s", "rate", "MB/s", Bar("ratio", "at least", 2.0))
REQUESTS = Metric("messages_per_s", "rate", "requests/s", Bar("ratio", "at least", 4.0))
HALF = Bar("ratio", "at most", 0.5)
LATENCY = (
    Metric("p50_ms", "p50", "ms", HALF),
    Metric("p99_ms", "p99", "ms", HALF),
    CPU_PER_REQUEST,
)


def one_kilobyte(context: Context, clusters: Sequence[Target]) -> list[Row]:
    load = {"count": context.scaled(500_000, 150_000), "size": 1_024}
    return _compare(context, clusters, "3 brokers: produce 1 KB", [RATE, CPU_PER_GB], load)


def one_record_requests(context: Context, clusters: Sequence[Target]) -> list[Row]:
    config = {"linger.ms": 0, "batch.num.messages": 1}
    load = {"count": context.scaled(20_000, 5_000), "size": 100, "config": config}
    name = "3 brokers: one-record requests"
    return _compare(context, clusters, name, [REQUESTS, CPU_PER_REQUEST], load, MANY_CLIENTS)


def one_at_a_time(context: Context, clusters: Sequence[Target]) -> list[Row]:
    count = context.scaled(5_000, 1_500)

    def measure(cluster: Target) -> Figures:
        with topic(cluster, 1) as name:
            settle_disk()
            before = cluster.cpu_seconds()
            place = {"bootstrap": cluster.bootstrap, "topic": name}
            figures = run_driver("synchronous", count=count, size=1_024, **place)
            spent = (cluster.cpu_seconds() - before) / len(cluster.pids)
            return figures | {"cpu_us_per_message": spent / figures["messages"] * 1e6}

    return context.compare("3 brokers: synchronous produce 1 KB", LATENCY, clusters, measure)


def _compare(
    context: Context,
    clusters: Sequence[Target],
    name: str,
    metrics: Sequence[Metric],
    load: dict[str, Any],
    clients: int = 1,
) -> list[Row]:
    def measure(cluster: Target) -> Figures:
        with topic(cluster, PARTITIONS) as made:
            settle_disk()
            return measure_produce(cluster, made, load, PARTITIONS, clients=clients)

    return context.compare(name, metrics, clusters, measure)
