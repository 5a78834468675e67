"""10,000 partitions in one broker under the usual limit of open files, against a broker with 10."""

from __future__ import annotations

import time

from bench.comparison import Bar, Row
from bench.context import Context
from bench.measure import Spread, cpu_seconds, rss_mb
from bench.scenarios.produce import measure_produce
from bench.scenarios.start import fill_partitions
from bench.servers import Penstock, Server
from bench.topics import create_topic

MANY, FEW = 10_000, 10
NAME = "10,000 partitions"
SETTLE_S = 5


def ten_thousand(context: Context) -> list[Row]:
    """Two brokers, both running, so that rounds can take turns.

    The measured partition has its own topic, because client libraries iterate over all partitions of a
    topic.
    """
    load = {"count": context.scaled(500_000, 150_000), "size": 1_024}
    with Penstock() as many, Penstock() as few:
        for server, partitions in ((few, FEW), (many, MANY)):
            context.say(f"{NAME}: filling {partitions}")
            fill_partitions(server, "rest", partitions - 1)
            create_topic(server, "one", 1)
        ratios = []
        for number in range(-context.warm_ups, context.rounds):
            context.say(f"{NAME}: round {number + 1} of {context.rounds}")
            rates = [measure_produce(server, "one", load, 1)["mb_per_s"] for server in (many, few)]
            ratios += [rates[0] / rates[1]] if number >= 0 else []
        memory = rss_mb(many.pid)
        many.stop()
        many.start()
        context.say(f"{NAME}: idle")
        idle = _idle_percent(many, context.scaled(70, 20))
    return [
        Row(NAME, "idle CPU", "%", Spread.of([idle]), bar=Bar("value", "at most", 2.0)),
        Row(
            NAME,
            "produce rate to one, times that with 10",
            "x",
            Spread.of(ratios),
            bar=Bar("value", "at least", 0.9),
        ),
        Row(NAME, "resident", "MB", Spread.of([memory])),
        Row(NAME, "start to first answer", "s", Spread.of([many.start_s])),
    ]


def _idle_percent(server: Server, seconds: float) -> float:
    """CPU time of an idle broker after a start, without work left from earlier load."""
    time.sleep(SETTLE_S)
    before = cpu_seconds(server.pid)
    time.sleep(seconds)
    return (cpu_seconds(server.pid) - before) / seconds * 100
