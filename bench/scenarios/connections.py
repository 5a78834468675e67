"""5,000 producers and 5,000 consumers connected, against 5 and 5, at the same rate of rounds."""

from __future__ import annotations

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread, rss_mb
from bench.servers import Penstock
from bench.topics import create_topic

MANY, FEW = 5_000, 5
ROUNDS_PER_S = 300
MAX_WAIT_MS = 5_000
NAME = "10,000 connections"
SHOWN = ("ack_p50_ms", "ack_p99_ms", "round_p50_ms", "round_p99_ms")


def ten_thousand(context: Context) -> list[Row]:
    seconds = context.scaled(20, 8)
    found: dict[int, list[Figures]] = {FEW: [], MANY: []}
    with Penstock() as server:
        create_topic(server, "t", MANY)
        for number in range(-context.warm_ups, context.rounds):
            for pairs in (FEW, MANY):
                context.say(f"{NAME}: round {number + 1} of {context.rounds}, {2 * pairs} connections")
                figures = _measure(server, pairs, seconds)
                found[pairs] += [figures] if number >= 0 else []
        memory = rss_mb(server.pid)
    return [*_absolute(found), *_relative(found), Row(NAME, "resident", "MB", Spread.of([memory]))]


def _measure(server: Penstock, pairs: int, seconds: float) -> Figures:
    load = {"pairs": pairs, "rounds_per_s": ROUNDS_PER_S, "seconds": seconds, "max_wait_ms": MAX_WAIT_MS}
    return run_driver("pairs", bootstrap=server.bootstrap, topic="t", **load)


def _absolute(found: dict[int, list[Figures]]) -> list[Row]:
    return [
        Row(
            f"{2 * pairs:,} connections",
            key[:-3].replace("_", " "),
            "ms",
            Spread.of([f[key] for f in figures]),
        )
        for pairs, figures in found.items()
        for key in SHOWN
    ]


def _relative(found: dict[int, list[Figures]]) -> list[Row]:
    bar = Bar("value", "at most", 2.0)
    rows = []
    for key in ("ack_p99_ms", "round_p99_ms"):
        ratios = [many[key] / few[key] for many, few in zip(found[MANY], found[FEW], strict=True)]
        label = f"{key[:-3].replace('_', ' ')}, times that with 10"
        rows.append(Row(NAME, label, "x", Spread.of(ratios), bar=bar))
    return rows
