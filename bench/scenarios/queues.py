"""Queues with our client and over HTTP: rates, dead letters, and delayed releases in memory and time."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.gateways import Gateway
from bench.measure import Spread
from bench.scenarios.gateway import measured
from bench.scenarios.push import fill_queue
from bench.servers import Penstock

CLIENTS = 16
RELEASED_S = 60.0


def workers(context: Context) -> list[Row]:
    """Messages that eight workers of `Queue` accept, one at a time."""
    return _rates(context, "queue-one", "workers", context.scaled(40_000, 8_000), 5_000)


def hundreds(context: Context) -> list[Row]:
    """Messages that are received and accepted a hundred at a time."""
    return _rates(context, "queue-hundred", "hundred", context.scaled(400_000, 80_000), 50_000)


def dead_letters(context: Context) -> list[Row]:
    """Rejected messages whose dead letters are written."""
    count = context.scaled(100_000, 20_000)
    return _rates(context, "queue-dead-letters", "rejected", count, 10_000, dead_letter="dead")


def _rates(context: Context, name: str, how: str, count: int, target: int, **settings: str) -> list[Row]:
    found: list[Figures] = []
    with Penstock() as server:
        for number in range(context.rounds):
            context.say(f"{name}: round {number + 1} of {context.rounds}")
            queue = f"{name}-{number}"
            asyncio.run(fill_queue(server.bootstrap, queue, count, **settings))
            place = {"bootstrap": server.bootstrap, "queue": queue}
            found.append(run_driver("queue_work", how=how, **place, messages=count))
    rate = Spread.of([each["per_s"] for each in found])
    return [Row(name, "messages", "/s", rate, bar=Bar("value", "at least", target))]


def requests(context: Context) -> list[Row]:
    """Messages that HTTP clients send, receive and settle, ten in a request, at a gateway process."""
    count, found = context.scaled(80_000, 16_000), []
    with Penstock() as broker, Gateway(broker) as gateway:
        for number in range(context.rounds):
            context.say(f"queue-http: round {number + 1} of {context.rounds}")
            asyncio.run(fill_queue(broker.bootstrap, f"http-{number}", 0))
            load: dict[str, Any] = {"queue": f"http-{number}", "clients": CLIENTS, "messages": count}
            found.append(measured(gateway, "queue_requests", load))
    per_core = [each["per_s"] / each["gateway_cores"] for each in found]
    return [
        Row("queue-http", "messages", "/s", Spread.of([each["per_s"] for each in found])),
        Row(
            "queue-http",
            "messages for a core of the gateway",
            "/s",
            Spread.of(per_core),
            bar=Bar("value", "at least", 5_000),
        ),
    ]


def releases(context: Context) -> list[Row]:
    """Delayed releases: memory of the broker, and time between due time and receipt."""
    count, found = context.scaled(100_000, 20_000), []
    with Penstock() as server:
        for number in range(context.rounds):
            context.say(f"queue-releases: round {number + 1} of {context.rounds}")
            queue = f"releases-{number}"
            asyncio.run(fill_queue(server.bootstrap, queue, count))
            load = {"bootstrap": server.bootstrap, "queue": queue, "messages": count, "pid": server.pid}
            found.append(run_driver("queue_work", how="released", **load, last_s=RELEASED_S))
    shown = (
        ("memory_mb", "memory", "MB", Bar("value", "at most", 20.0)),
        ("late_p99_ms", "late, p99", "ms", Bar("value", "at most", 50.0)),
        ("early_ms", "early, the worst", "ms", Bar("value", "at most", 1.0)),
    )
    return [
        Row("queue-releases", label, unit, Spread.of([each[key] for each in found]), bar=bar)
        for key, label, unit, bar in shown
    ]
