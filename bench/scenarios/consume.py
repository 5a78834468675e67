"""Consume rate of a topic that was loaded before, from the beginning in every round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import MB
from bench.scenarios.produce import GB, PARTITIONS, measure_produce
from bench.target import Target
from bench.topics import topic

BATCHES = {"batch.size": 65_536, "linger.ms": 20}
"""The same batch size for all servers: a fetch ends with a partial batch, so large batches would differ in
cost.
"""
METRICS = (
    Metric("mb_per_s", "rate", "MB/s", Bar("ratio", "at least", 1.2)),
    Metric("cpu_s_per_gb", "server CPU", "s/GB", Bar("ratio", "at most", 0.8)),
)


def one_kilobyte(context: Context, servers: Sequence[Target]) -> list[Row]:
    """Consume with a client library, and with a driver that costs so little that the broker is the
    bottleneck.
    """
    with _loaded(context, servers) as (names, count):

        def raw(server: Target) -> Figures:
            return measure_consume(server, names[server.name], count, driver="raw_consume")

        rows = _with_client(context, servers, names, count)
        plain = [replace(metric, bar=None) for metric in METRICS]
        return rows + context.compare("consume 1 KB, raw driver", plain, servers, raw)


def with_client(context: Context, servers: Sequence[Target]) -> list[Row]:
    """Consume with a client library alone."""
    with _loaded(context, servers) as (names, count):
        return _with_client(context, servers, names, count)


@contextmanager
def _loaded(context: Context, servers: Sequence[Target]) -> Iterator[tuple[dict[str, str], int]]:
    """Topics by server, and the number of messages in each."""
    count = context.scaled(2_000_000, 500_000)
    with ExitStack() as stack:
        names = {server.name: stack.enter_context(topic(server, PARTITIONS)) for server in servers}
        for server in servers:
            context.say(f"consume 1 KB: loading {server.name}")
            measure_produce(server, names[server.name], {"count": count, "size": 1_024, "config": BATCHES})
        yield names, count


def _with_client(context: Context, servers: Sequence[Target], names: dict[str, str], count: int) -> list[Row]:
    def client(server: Target) -> Figures:
        return measure_consume(server, names[server.name], count)

    return context.compare("consume 1 KB", METRICS, servers, client)


def measure_consume(server: Target, name: str, count: int, driver: str = "consume", **more: int) -> Figures:
    """Read `count` messages from the beginning or `offset`, and measure the CPU time of the server."""
    before = server.cpu_seconds()
    done = run_driver(
        driver, bootstrap=server.bootstrap, topic=name, partitions=PARTITIONS, count=count, **more
    )
    spent = server.cpu_seconds() - before
    return {"mb_per_s": done["bytes"] / MB / done["seconds"], "cpu_s_per_gb": spent / done["bytes"] * GB}
