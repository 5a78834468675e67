"""Cost of 10,000 groups of one member each that only send a heartbeat every three seconds."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.scenarios.groups import SETTINGS
from bench.target import Target
from bench.topics import topic

GROUPS = 10_000
INTERVAL_S = 3.0
METRICS = (
    Metric("cpu_percent", "server CPU", "% of a core", Bar("value", "at most", 15.0)),
    Metric("heartbeats_per_s", "heartbeats", "/s"),
    Metric("p99_ms", "answered, p99", "ms"),
)
_numbers = itertools.count()


def ten_thousand_groups(context: Context) -> list[Row]:
    """Fewer rounds than other scenarios, because the figure is stable."""
    seconds = context.scaled(20, 6)

    def measure(server: Target) -> Figures:
        with topic(server, 1) as made:
            return run_driver(
                "heartbeats",
                bootstrap=server.bootstrap,
                topic=made,
                prefix=f"group-{next(_numbers)}",
                groups=GROUPS,
                interval_s=INTERVAL_S,
                seconds=seconds,
                server_pid=server.pids[0],
            )

    with ExitStack() as stack:
        servers: list[Target] = [stack.enter_context(make(settings=SETTINGS)) for make in context.contestants]
        chosen = replace(context, rounds=context.scaled(3, 1), warm_ups=0)
        return chosen.compare("10,000 groups heartbeat", METRICS, servers, measure)
