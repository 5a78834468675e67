"""Latency of a producer that waits for each acknowledgement."""

from __future__ import annotations

from collections.abc import Sequence

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.target import Target
from bench.topics import topic

BAR = Bar("ratio", "at most", 0.75)
METRICS = (Metric("p50_ms", "p50", "ms", BAR), Metric("p99_ms", "p99", "ms", BAR))


def one_at_a_time(context: Context, servers: Sequence[Target]) -> list[Row]:
    count = context.scaled(10_000, 3_000)

    def measure(server: Target) -> Figures:
        with topic(server, 1) as name:
            return run_driver("synchronous", bootstrap=server.bootstrap, topic=name, count=count, size=1_024)

    return context.compare("synchronous produce 1 KB", METRICS, servers, measure)
