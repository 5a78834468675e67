"""Share groups with priorities and with order by key, beside share groups without an order."""

from __future__ import annotations

from typing import Any

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread
from bench.scenarios.shares import SETTINGS
from bench.servers import Penstock
from bench.topics import create_topic

PARTITIONS = 4
KEYS = 1_000
CONSUMERS = 100


def by_key(context: Context) -> list[Row]:
    """A thousand keys and a hundred consumers, one record at a time and ten at a time."""
    rows: list[Row] = []
    count = context.scaled(40_000, 4_000)
    with Penstock(settings=SETTINGS) as server:
        create_topic(server, "keyed", PARTITIONS)
        common = {"topic": "keyed", "partitions": PARTITIONS, "consumers": CONSUMERS, "size": 1_024}
        _run(server, how="write", group="", count=count, keys=KEYS, **common)
        for at_a_time in (1, 10):
            name = f"order-by-key, {at_a_time} at a time"
            rates: dict[str, list[float]] = {"none": [], "key": []}
            for number in range(context.rounds):
                for how in ("none", "key") if number % 2 else ("key", "none"):
                    context.say(f"{name}: round {number + 1}, {how}")
                    group = f"{how}-{at_a_time}-{number}"
                    load = {"count": count, "records_at_a_time": at_a_time}
                    figures = _run(server, how=how, group=group, **load, **common)
                    rates[how].append(figures["messages"] / figures["seconds"])
            ratios = [keyed / plain for plain, keyed in zip(rates["none"], rates["key"], strict=True)]
            rows += [
                Row(name, "without order", "messages/s", Spread.of(rates["none"])),
                Row(name, "order by key", "messages/s", Spread.of(rates["key"])),
                Row(name, "order by key", "x", Spread.of(ratios), bar=Bar("value", "at least", 0.5)),
            ]
    return rows


def urgent(context: Context) -> list[Row]:
    """Records of level 9 over a backlog of a million at level 0, in one partition."""
    name, found = "priority-over-backlog", []
    with Penstock(settings=SETTINGS) as server:
        for number in range(context.rounds):
            context.say(f"{name}: round {number + 1}")
            topic = f"backlog-{number}"  # the urgent records of a round would come first in the next one
            create_topic(server, topic, 1)
            common = {"topic": topic, "partitions": 1, "consumers": 1, "size": 100}
            _run(server, how="write", group="", count=context.scaled(1_000_000, 200_000), keys=0, **common)
            count = context.scaled(500, 200)
            found.append(_run(server, how="urgent", group=f"urgent-{number}", count=count, **common))
    return [
        Row(name, "received after, p50", "ms", Spread.of([each["p50_ms"] for each in found])),
        Row(
            name,
            "received after, p99",
            "ms",
            Spread.of([each["p99_ms"] for each in found]),
            bar=Bar("value", "at most", 50),
        ),
        Row(
            name,
            "lower records delivered before it",
            "",
            Spread.of([each["overtaken"] for each in found]),
            bar=Bar("value", "at most", 0),
        ),
    ]


def _run(server: Penstock, **load: Any) -> Figures:
    return run_driver("orders", bootstrap=server.bootstrap, **load)
