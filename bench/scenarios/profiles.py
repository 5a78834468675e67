"""The two profiles of the Penstock client: one must have the higher rate, the other the lower latency."""

from __future__ import annotations

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread
from bench.servers import Penstock
from bench.topics import topic

PROFILES = ("throughput", "latency")
PARTITIONS = 4
MESSAGES_PER_S = 200.0
SHOWN = {
    "written_per_s": ("written", "messages/s"),
    "read_per_s": ("read", "messages/s"),
    "p50_ms": ("end to end, p50", "ms"),
    "p99_ms": ("end to end, p99", "ms"),
}
NAME = "client profiles"


def both(context: Context) -> list[Row]:
    found: dict[str, list[Figures]] = {profile: [] for profile in PROFILES}
    with Penstock() as server:
        for number in range(-min(1, context.warm_ups), context.rounds):
            for profile in PROFILES:
                context.say(f"{NAME}: round {number + 1} of {context.rounds}, {profile}")
                figures = _measure(context, server, profile)
                found[profile] += [figures] if number >= 0 else []
    return [*_absolute(found), *_relative(found)]


def _measure(context: Context, server: Penstock, profile: str) -> Figures:
    load = {"count": context.scaled(500_000, 150_000), "size": 1_024}
    pace = {"paced": context.scaled(2_000, 600), "messages_per_s": MESSAGES_PER_S}
    with topic(server, PARTITIONS) as bulk, topic(server, 1) as paced:
        place = {"bootstrap": server.bootstrap, "topic": bulk, "paced_topic": paced}
        return run_driver("profile", profile=profile, **place, **load, **pace)


def _absolute(found: dict[str, list[Figures]]) -> list[Row]:
    return [
        Row(f"profile {profile}", label, unit, Spread.of([figures[key] for figures in measured]))
        for profile, measured in found.items()
        for key, (label, unit) in SHOWN.items()
    ]


def _relative(found: dict[str, list[Figures]]) -> list[Row]:
    rounds = list(zip(found["throughput"], found["latency"], strict=True))
    rates = Spread.of([fast["written_per_s"] / soon["written_per_s"] for fast, soon in rounds])
    waits = Spread.of([soon["p99_ms"] / fast["p99_ms"] for fast, soon in rounds])
    return [
        Row(NAME, "rate of throughput to that of latency", "x", rates, bar=Bar("value", "at least", 1.0)),
        Row(NAME, "p99 of latency to that of throughput", "x", waits, bar=Bar("value", "at most", 1.0)),
    ]
