"""Transactions beside Kafka, on one broker and on three: with many messages each, and with few.

The client uses version 1 of the protocol with both. Every transaction contains all partitions of the
topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import MB
from bench.scenarios.produce import CPU_PER_GB, GB
from bench.servers import DefaultPenstock
from bench.target import Target, settle_disk
from bench.topics import topic

PARTITIONS = 4
SIZE = 1_024
OPEN_S = 0.1
MESSAGES = 10
PRODUCERS = 8
"""Concurrent producers of small transactions; one producer alone mostly waits, and shows the commit latency."""
AT_LEAST_KAFKA = Bar("ratio", "at least", 1.0)
AT_MOST_KAFKA = Bar("ratio", "at most", 1.0)
LATENCY = (
    Metric("p50_ms", "commit, p50", "ms", AT_MOST_KAFKA),
    Metric("p99_ms", "commit, p99", "ms", AT_MOST_KAFKA),
)
SMALL_LATENCY = (replace(LATENCY[0], bar=Bar("ratio", "at most", 0.9)), LATENCY[1])
LARGE = (Metric("mb_per_s", "rate", "MB/s", AT_LEAST_KAFKA), *LATENCY, CPU_PER_GB)
SMALL = (
    Metric("transactions_per_s", "rate", "transactions/s", AT_LEAST_KAFKA),
    *SMALL_LATENCY,
    Metric("cpu_us_per_transaction", "server CPU", "us/transaction"),
)


def one_broker(context: Context) -> list[Row]:
    """The servers, and Penstock with its default durability."""
    makers = (*context.contestants, DefaultPenstock)
    with ExitStack() as stack:
        return _both(context, [stack.enter_context(make()) for make in makers])


def three_brokers(context: Context, clusters: Sequence[Target]) -> list[Row]:
    return _both(context, clusters, "3 brokers: ")


def _both(context: Context, servers: Sequence[Target], prefix: str = "") -> list[Row]:
    large = f"{prefix}a commit every 100 ms"
    small = f"{prefix}10 messages a transaction"
    alone = f"{small}, one producer"
    return [
        *_compare(context, servers, large, LARGE, producers=1, open_s=OPEN_S),
        *_compare(context, servers, small, SMALL, producers=PRODUCERS, messages=MESSAGES),
        *_compare(context, servers, alone, SMALL_LATENCY, producers=1, messages=MESSAGES),
    ]


def _compare(
    context: Context, servers: Sequence[Target], name: str, metrics: Sequence[Metric], **load: Any
) -> list[Row]:
    seconds = context.scaled(15, 5)

    def measure(server: Target) -> Figures:
        with topic(server, PARTITIONS) as made:
            settle_disk()
            before = server.cpu_seconds()
            place: dict[str, Any] = {"bootstrap": server.bootstrap, "topic": made, "partitions": PARTITIONS}
            done = run_driver("transactions", **place, size=SIZE, seconds=seconds, **load)
            return done | _rates(done, (server.cpu_seconds() - before) / len(server.pids))

    return context.compare(name, metrics, servers, measure)


def _rates(done: Figures, spent_s: float) -> Figures:
    return {
        "mb_per_s": done["bytes"] / MB / done["seconds"],
        "transactions_per_s": done["transactions"] / done["seconds"],
        "cpu_s_per_gb": spent_s / done["bytes"] * GB,
        "cpu_us_per_transaction": spent_s / done["transactions"] * 1e6,
    }
