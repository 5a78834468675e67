"""Share groups beside Kafka: records one by one, in bulk, with a commit each, and a thousand consumers.

Penstock with its default durability is a column without a ratio: Kafka does not sync.
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
from bench.scenarios.consume import BATCHES
from bench.scenarios.produce import PARTITIONS, measure_produce
from bench.servers import Penstock
from bench.target import Target
from bench.topics import topic

SETTINGS = (
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "group.share.max.size=1000",
    "group.share.max.share.sessions=2000",
)
SIZE = 1_024
_numbers = itertools.count()


def _metrics(rate: float | None, cpu: float | None) -> tuple[Metric, ...]:
    return (
        Metric("messages_per_s", "rate", "messages/s", Bar("ratio", "at least", rate) if rate else None),
        Metric("cpu_us", "server CPU", "us/message", Bar("ratio", "at most", cpu) if cpu else None),
    )


FAIRNESS = (
    *_metrics(None, None),
    Metric("least_share", "the consumer with the fewest", "of the mean", Bar("value", "at least", 0.9)),
    Metric("longest_wait_s", "longest wait", "s", Bar("value", "at most", 2.0)),
)


def one_at_a_time(context: Context) -> list[Row]:
    count = context.scaled(5_000, 1_500)
    rows: list[Row] = []
    with _servers(context) as servers:
        for consumers in (1, 8):
            name = f"share group, one record at a time, {consumers} consumer{'s' if consumers > 1 else ''}"
            load = {"how": "raw", "consumers": consumers, "count": count}
            rows += _compare(context, servers, name, _metrics(10.0, 0.1), **load)
        name = "share group, commit_sync after each record"
        load = {"how": "commit", "consumers": 1, "count": count}
        rows += _compare(context, servers, name, _metrics(8.0, None), **load)
    return rows


def in_bulk(context: Context) -> list[Row]:
    """Consume records of large batches with confluent-kafka and with raw connections."""
    count = context.scaled(500_000, 150_000)
    rows: list[Row] = []
    with _servers(context) as servers:
        for how, bars in (("client", _metrics(1.0, 0.5)), ("raw", _metrics(1.2, 0.5))):
            load = {"how": how, "consumers": 4 if how == "raw" else 1, "count": count, "is_loaded": True}
            rows += _compare(
                context, servers, f"share group, bulk, {how}", bars, records_at_a_time=500, **load
            )
    return rows


def thousand_consumers(context: Context) -> list[Row]:
    count = context.scaled(40_000, 10_000)
    rows: list[Row] = []
    with _servers(context) as servers:
        for consumers in (10, 1_000):
            load = {"how": "raw", "consumers": consumers, "count": count}
            rows += _compare(context, servers, f"share group, {consumers} consumers", FAIRNESS, **load)
    return rows


@contextmanager
def _servers(context: Context) -> Iterator[list[Target]]:
    with ExitStack() as stack:
        made: list[Target] = [make(settings=SETTINGS) for make in context.contestants]
        made.append(Penstock(durability="auto", settings=SETTINGS))
        yield [stack.enter_context(server) for server in made]


def _compare(
    context: Context, servers: Sequence[Target], name: str, metrics: Sequence[Metric], **load: Any
) -> list[Row]:
    def measure(server: Target) -> Figures:
        with topic(server, PARTITIONS) as made:
            if load.get("is_loaded"):
                produced = {"count": load["count"], "size": SIZE, "config": BATCHES}
                measure_produce(server, made, produced)
            return _measure(server, made, load)

    *contestants, default = servers
    plain = [replace(metric, bar=None) for metric in metrics]
    return [
        *context.compare(name, metrics, contestants, measure),
        *context.compare(f"{name}, default durability", plain, [default], measure),
    ]


def _measure(server: Target, name: str, load: dict[str, Any]) -> Figures:
    common = {
        "bootstrap": server.bootstrap,
        "topic": name,
        "group": f"shares-{next(_numbers)}",
        "partitions": PARTITIONS,
        "size": SIZE,
        **{key: value for key, value in load.items() if key != "is_loaded"},
    }
    if not load.get("is_loaded"):
        run_driver("shares", **{**common, "how": "write"})  # not measured
    before = server.cpu_seconds()
    done = run_driver("shares", **common)
    spent = server.cpu_seconds() - before
    return {
        **done,
        "messages_per_s": done["messages"] / done["seconds"],
        "cpu_us": spent / done["messages"] * 1e6,
    }
