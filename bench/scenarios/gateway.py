"""The HTTP gateway: sends to users and long polls, batches, and connections that wait for events.

One broker and one gateway process, with durability=os and with the default. Load generator, gateway and broker
share the machine, so the load of the gateway's core is reported beside the latencies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, finish_driver, run_driver, start_driver
from bench.gateways import LIMITS, Gateway
from bench.mailbox_load import MailboxLoad, run_load
from bench.measure import Spread, rss_mb
from bench.scenarios.isolation import LOWEST, victims
from bench.servers import Penstock
from bench.topics import create_topic

SIZE = 1_024
POLLS = 1_000
RATE = 5_000
WARM_UP_S = 5
EVENT_CONNECTIONS = 10_000
BATCH = 1_000
SLOW_CLIENTS = 500
SETTLE_S = 5.0
"""Seconds in which slow clients connect and receive what fits into their buffers."""

Shown = Sequence[tuple[str, str, str, Bar | None]]


def mailboxes(context: Context) -> list[Row]:
    end_s = WARM_UP_S + context.scaled(30, 10)
    load = MailboxLoad(
        [(end_s, RATE)], {"paced": (WARM_UP_S, end_s)}, user_ids=POLLS, watched=1.0, polls=POLLS
    )
    shown: Shown = (
        ("paced_arrival_p50_ms", "end to end, p50", "ms", None),
        ("paced_arrival_p99_ms", "end to end, p99", "ms", Bar("value", "at most", 50.0)),
        *SENDING,
    )
    name = f"HTTP: {RATE:,} x 1 KB/s to {POLLS:,} users with long polls"

    def measure(durability: str) -> Figures:
        with Penstock(durability) as broker, Gateway(broker) as gateway:
            return run_load(load, gateway, broker)

    return rows_of(context, name, shown, measure)


def batches(context: Context) -> list[Row]:
    load = {"size": SIZE, "batch": BATCH, "connections": 8, "batches": context.scaled(2_000, 400)}
    shown: Shown = (
        ("mb_per_s", "binary batches", "MB/s", Bar("value", "at least", 100.0)),
        ("gateway_cores", "CPU of the gateway", "cores", None),
    )

    def measure(durability: str) -> Figures:
        with Penstock(durability) as broker, Gateway(broker) as gateway:
            create_topic(broker, "t", 4)
            return measured(gateway, "http_batches", load | {"topic": "t"})

    return rows_of(context, "HTTP: batch produce", shown, measure)


def idle_events(context: Context) -> list[Row]:
    with Penstock() as broker, Gateway(broker) as gateway:
        create_topic(broker, "t", 1)
        context.say(f"{EVENT_CONNECTIONS:,} connections that wait for events")
        load = {"topic": "t", "connections": EVENT_CONNECTIONS, "pid": gateway.pid}
        figures = run_driver("idle_events", port=gateway.port, **load)
    shown: Shown = (
        ("before_mb", "resident before", "MB", None),
        ("idle_mb", "resident", "MB", Bar("value", "at most", 500.0)),
        ("idle_cores", "CPU while nothing is sent", "cores", None),
        ("fan_out_p50_ms", "one message to all, p50", "ms", None),
        ("fan_out_max_ms", "one message to all, the last", "ms", None),
    )
    name = f"HTTP: {EVENT_CONNECTIONS:,} idle streams of events"
    return [Row(name, label, unit, Spread.of([figures[key]]), bar=bar) for key, label, unit, bar in shown]


def slow_clients(context: Context) -> list[Row]:
    """Kafka clients of a broker with its own gateway, first alone, then beside HTTP clients that hardly read."""
    name = f"{SLOW_CLIENTS:,} slow HTTP clients beside Kafka clients"
    seconds = context.scaled(20, 8)
    found: dict[str, list[Figures]] = {"quiet": [], "beside": []}
    with Penstock(settings=LIMITS) as server:
        for topic in ("victim", "busy"):
            create_topic(server, topic, 4)
        run_driver(
            "produce", topic="busy", partitions=4, count=100_000, size=SIZE, bootstrap=server.bootstrap
        )
        for number in range(context.rounds):
            context.say(f"{name}: round {number + 1} of {context.rounds}")
            found["quiet"].append(victims(server, seconds))
            slow = {"topic": "busy", "clients": SLOW_CLIENTS, "seconds": seconds + 15, "interval_s": 0.5}
            noise = start_driver("slow_events", nice=LOWEST, port=server.http_port, **slow)
            time.sleep(SETTLE_S)
            found["beside"].append(victims(server, seconds))
            finish_driver("slow_events", noise)
        memory = rss_mb(server.pid)
    pairs = zip(found["beside"], found["quiet"], strict=True)
    ratio = Spread.of([beside["p99_ms"] / quiet["p99_ms"] for beside, quiet in pairs])
    return [
        *(
            Row(name, f"{kind}: {key[:-3]}", "ms", Spread.of([figures[key] for figures in measured]))
            for kind, measured in found.items()
            for key in ("p50_ms", "p99_ms")
        ),
        Row(name, "p99, times that without", "x", ratio, bar=Bar("value", "at most", 2.0)),
        Row(name, "resident", "MB", Spread.of([memory])),
    ]


SENDING: Shown = (
    ("paced_ack_p50_ms", "acknowledged, p50", "ms", None),
    ("paced_ack_p99_ms", "acknowledged, p99", "ms", None),
    ("paced_messages_per_s", "acknowledged", "messages/s", None),
    ("unsent", "not acknowledged after 10 s", "messages", Bar("value", "at most", 0.0)),
    ("errors", "errors", "", Bar("value", "at most", 0.0)),
    ("lost", "acknowledged, but not received", "messages", Bar("value", "at most", 0.0)),
    ("paced_gateway_cores", "CPU of the gateway", "cores", None),
    ("paced_gateway_us", "CPU of the gateway for a message", "us", None),
    ("paced_brokers_us", "CPU of the brokers for a message", "us", None),
)


def measured(gateway: Gateway, driver: str, load: dict[str, Any]) -> Figures:
    """Figures of the driver, and the CPU time of the gateway during its run."""
    before, began = gateway.cpu_seconds(), time.monotonic()
    figures = run_driver(driver, port=gateway.port, **load)
    return figures | {"gateway_cores": (gateway.cpu_seconds() - before) / (time.monotonic() - began)}


def rows_of(
    context: Context, name: str, shown: Shown, measure: Callable[[str], Figures], rounds: int = 0
) -> list[Row]:
    """Rounds with durability=os and with the default durability in turn."""
    found: dict[str, list[Figures]] = {"os": [], "auto": []}
    count = rounds or context.rounds
    for number in range(count):
        for durability, figures in found.items():
            context.say(f"{name}: round {number + 1} of {count}, durability={durability}")
            figures.append(measure(durability))
    return [
        Row(
            name,
            label,
            unit,
            Spread.of([figures[key] for figures in found["os"]]),
            bar=bar,
            default=Spread.of([figures[key] for figures in found["auto"]]),
        )
        for key, label, unit, bar in shown
    ]
