"""Time from the start of a process to its first response: empty, and with 1,000 partitions after a clean
stop.
"""

from __future__ import annotations

import time

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures
from bench.scenarios.produce import measure_produce
from bench.target import Target
from bench.topics import create_topic

BAR = Bar("value", "at most", 1.0)
METRICS = (Metric("start_s", "start to first answer", "s", BAR),)
PARTITIONS = 1_000
SPREAD = {"partitioner": "random", "sticky.partitioning.linger.ms": 0}


def first_answer(context: Context) -> list[Row]:
    """Stop and start every server in each round."""
    with context.servers() as servers:
        rows = context.compare("start, no topics", METRICS, servers, restart)
        for server in servers:
            fill_partitions(server, "many", PARTITIONS)
        return rows + context.compare("start, 1,000 partitions", METRICS, servers, restart)


def restart(server: Target) -> Figures:
    server.stop()
    began = time.monotonic()
    server.start()
    return {"start_s": time.monotonic() - began}


def fill_partitions(server: Target, topic: str, partitions: int) -> None:
    """A topic with a record in every partition."""
    create_topic(server, topic, partitions)
    measure_produce(server, topic, {"count": 20 * partitions, "size": 100, "config": SPREAD}, partitions)
