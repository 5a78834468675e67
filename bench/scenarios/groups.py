"""Consumer groups beside Kafka, both without a delay before a group's first rebalance.

The members are raw connections with the classic protocol, the same for both brokers; see
`drivers/groups.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.servers import Penstock
from bench.target import Target
from bench.topics import topic

SESSION_MS = 1_000
SETTINGS = ("group.initial.rebalance.delay.ms=0", f"group.min.session.timeout.ms={SESSION_MS}")
LONG_SESSION_MS = 30_000
HEARTBEAT_S = 0.1
SIZES = (2, 20, 200)
COMMITTERS = 100
AT_MOST_KAFKA = Bar("ratio", "at most", 1.0)
AT_LEAST_KAFKA = Bar("ratio", "at least", 1.0)
UNTIL_ALL_READ = (Metric("ms", "until all read", "ms", AT_MOST_KAFKA),)
UNTIL_READ_AGAIN = (
    Metric("ms", "until its partitions are read", "ms", AT_MOST_KAFKA),
    Metric("beyond_session_ms", "beyond the session timeout", "ms", AT_MOST_KAFKA),
)
COMMIT_RATE = (
    Metric("commits_per_s", "rate", "commits/s", AT_LEAST_KAFKA),
    Metric("cpu_us_per_commit", "server CPU", "us/commit"),
)
_numbers = itertools.count()


def joining(context: Context) -> list[Row]:
    """Seconds until all members read: when one joins a reading group, and when all join at once."""
    rows: list[Row] = []
    with _servers(context) as servers:
        for size in SIZES:
            load = {"members": size, "session_ms": LONG_SESSION_MS, "heartbeat_s": HEARTBEAT_S}
            for what, name in (("join", "the last joins"), ("burst", "all join at once")):
                rows += _compare(
                    context, servers, f"{size} members, {name}", UNTIL_ALL_READ, size, what=what, **load
                )
    return rows


def crashing(context: Context) -> list[Row]:
    load = {"members": 10, "partitions": 30, "session_ms": SESSION_MS, "heartbeat_s": HEARTBEAT_S}
    with _servers(context) as servers:
        return _compare(context, servers, "a member of 10 dies", UNTIL_READ_AGAIN, 30, what="crash", **load)


def committing(context: Context) -> list[Row]:
    rows: list[Row] = []
    with _servers(context) as servers:
        for groups in (1, COMMITTERS):
            load = {"members": COMMITTERS, "groups": groups, "session_ms": LONG_SESSION_MS}
            name = f"{COMMITTERS} consumers commit, {groups} group{'s' if groups > 1 else ''}"
            seconds = context.scaled(8, 3)
            rows += _compare(
                context, servers, name, COMMIT_RATE, COMMITTERS, what="commits", seconds=seconds, **load
            )
    return rows


@contextmanager
def _servers(context: Context) -> Iterator[list[Target]]:
    """The servers with the same settings, and Penstock with its default durability."""
    with ExitStack() as stack:
        made: list[Target] = [make(settings=SETTINGS) for make in context.contestants]
        made.append(Penstock(durability="auto", settings=SETTINGS))
        yield [stack.enter_context(server) for server in made]


def _compare(
    context: Context,
    servers: Sequence[Target],
    name: str,
    metrics: Sequence[Metric],
    topic_partitions: int,
    **load: Any,
) -> list[Row]:
    """Measure the servers in turns, then Penstock with its default durability."""

    def measure(server: Target) -> Figures:
        with topic(server, topic_partitions) as made:
            more = {"server_pid": server.pids[0]} if load["what"] == "commits" else {}
            group = f"group-{next(_numbers)}"
            return run_driver("groups", bootstrap=server.bootstrap, topic=made, group=group, **load, **more)

    *contestants, default = servers
    plain = [replace(metric, bar=None) for metric in metrics]
    return [
        *context.compare(name, metrics, contestants, measure),
        *context.compare(f"{name}, default durability", plain, [default], measure),
    ]
