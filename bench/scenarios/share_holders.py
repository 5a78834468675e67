"""Share groups on one broker without a peer: a member that holds a record, and many records in flight.

Kafka limits the distance between the oldest and the newest record in flight, so it stops behind a record that is
held: there is no ratio.
"""

from __future__ import annotations

import itertools
from typing import Any

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread
from bench.scenarios.produce import PARTITIONS
from bench.scenarios.shares import SETTINGS, SIZE
from bench.servers import Penstock
from bench.target import Target
from bench.topics import topic

HOLDING = "share group, one of ten holds a record"
IN_FLIGHT = "share group, records in flight"
_MANY_PARTITIONS = 50
_numbers = itertools.count()


def slow_holder(context: Context) -> list[Row]:
    """Nine members take records one at a time, beside a member that holds a record and without it."""
    rates: dict[int, list[float]] = {0: [], 1: []}
    costs: dict[int, list[float]] = {0: [], 1: []}
    with Penstock(settings=SETTINGS) as server:
        for number in range(context.rounds):
            for holders in (0, 1) if number % 2 else (1, 0):
                context.say(f"{HOLDING}: round {number + 1}, {holders} holders")
                load = {"consumers": 9, "holders": holders, "count": context.scaled(40_000, 12_000)}
                figures = _run(server, PARTITIONS, "raw", **load)
                rates[holders].append(figures["messages"] / figures["seconds"])
                costs[holders].append(figures["cpu_s"] / figures["messages"] * 1e6)
    ratio = [held / free for free, held in zip(rates[0], rates[1], strict=True)]
    bar = Bar("value", "at least", 0.9)
    return [
        Row(HOLDING, "the nine without it", "messages/s", Spread.of(rates[0])),
        Row(HOLDING, "the nine beside it", "messages/s", Spread.of(rates[1])),
        Row(HOLDING, "beside it, times without", "x", Spread.of(ratio), bar=bar),
        Row(HOLDING, "server CPU without it", "us/message", Spread.of(costs[0])),
        Row(HOLDING, "server CPU beside it", "us/message", Spread.of(costs[1])),
    ]


def in_flight(context: Context) -> list[Row]:
    """Memory of the broker while members hold 100,000 records, each acquired alone."""
    count = context.scaled(100_000, 20_000)
    with Penstock(settings=SETTINGS) as server:
        _run(server, _MANY_PARTITIONS, "hold", consumers=8, count=1_000)  # not measured
        before_mb = server.rss_mb()
        context.say(f"{IN_FLIGHT}: {count} records")
        load = {"consumers": 8, "count": count, "watched_pid": server.pid}
        figures = _run(server, _MANY_PARTITIONS, "hold", **load)
        grown_mb = figures["rss_mb"] - before_mb
    bar = Bar("value", "at most", 50.0 * count / 100_000)
    return [
        Row(IN_FLIGHT, f"memory of {count:,}", "MB", Spread.of([grown_mb]), bar=bar),
        Row(IN_FLIGHT, "memory of one", "bytes", Spread.of([grown_mb * 1e6 / figures["messages"]])),
    ]


def _run(server: Target, partitions: int, how: str, **load: Any) -> Figures:
    with topic(server, partitions) as made:
        common = {
            "bootstrap": server.bootstrap,
            "topic": made,
            "group": f"holders-{next(_numbers)}",
            "partitions": partitions,
            "size": SIZE,
        }
        run_driver("shares", **common, how="write", consumers=1, count=load["count"] + 10)  # not measured
        before = server.cpu_seconds()
        done = run_driver("shares", **common, how=how, **load)
        return {**done, "cpu_s": server.cpu_seconds() - before}
