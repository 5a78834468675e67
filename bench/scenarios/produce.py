"""Produce rates with acks=all: large and small messages, lz4, idempotent, and one record a request."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.driver import Figures, finish_driver, start_driver
from bench.measure import MB
from bench.target import Target
from bench.topics import topic

PARTITIONS = 4
MANY_CLIENTS = 2
"""Several client processes where one process is slower than a broker: small messages, small requests."""
RAW_BATCH_BYTES = 65_536
GB = 1_000 * MB
MB_PER_S = Metric("mb_per_s", "rate", "MB/s", Bar("ratio", "at least", 1.5))
MESSAGES_PER_S = Metric("messages_per_s", "rate", "messages/s", Bar("ratio", "at least", 1.5))
CPU_PER_GB = Metric("cpu_s_per_gb", "server CPU", "s/GB")
LITTLE_CPU_PER_GB = replace(CPU_PER_GB, bar=Bar("ratio", "at most", 0.4))
REQUESTS_PER_S = Metric("messages_per_s", "rate", "requests/s", Bar("ratio", "at least", 3.0))
CPU_PER_REQUEST = Metric("cpu_us_per_message", "server CPU", "us/request")


def one_kilobyte(context: Context, servers: Sequence[Target]) -> list[Row]:
    load = {"count": context.scaled(1_000_000, 300_000), "size": 1_024}
    return _compare(context, servers, "produce 1 KB", [MB_PER_S, LITTLE_CPU_PER_GB], load)


def hundred_bytes(context: Context, servers: Sequence[Target]) -> list[Row]:
    load = {"count": context.scaled(2_000_000, 700_000), "size": 100}
    return _compare(
        context, servers, "produce 100 B", [MESSAGES_PER_S, LITTLE_CPU_PER_GB], load, MANY_CLIENTS
    )


def lz4(context: Context, servers: Sequence[Target]) -> list[Row]:
    count = context.scaled(1_000_000, 300_000)
    load = {"count": count, "size": 1_024, "compressible": True, "config": {"compression.type": "lz4"}}
    rate = replace(MB_PER_S, bar=Bar("ratio", "at least", 1.9))
    return _compare(context, servers, "produce 1 KB, lz4", [rate, LITTLE_CPU_PER_GB], load)


def idempotent(context: Context, servers: Sequence[Target]) -> list[Row]:
    count = context.scaled(1_000_000, 300_000)
    load = {"count": count, "size": 1_024, "config": {"enable.idempotence": True}}
    rate = replace(MB_PER_S, bar=Bar("ratio", "at least", 1.3))
    return _compare(context, servers, "produce 1 KB, idempotent", [rate, LITTLE_CPU_PER_GB], load)


def one_record_requests(context: Context, servers: Sequence[Target]) -> list[Row]:
    count = context.scaled(50_000, 20_000)
    load = {"count": count, "size": 100, "config": {"linger.ms": 0, "batch.num.messages": 1}}
    return _compare(
        context, servers, "one-record requests", [REQUESTS_PER_S, CPU_PER_REQUEST], load, MANY_CLIENTS
    )


def raw_one_record_requests(context: Context, servers: Sequence[Target]) -> list[Row]:
    load = {"count": context.scaled(200_000, 60_000), "size": 100, "connections": 4, "in_flight": 50}
    metrics = [REQUESTS_PER_S, CPU_PER_REQUEST]
    return _compare_raw(context, servers, "one-record requests, raw driver", metrics, load)


def raw_batches(context: Context, servers: Sequence[Target]) -> list[Row]:
    """Batches of 64 KB of large and of small messages, compressed, and from idempotent producers."""
    rows: list[Row] = []
    for what, size, kind, rate in (
        ("1 KB", 1_024, "plain", MB_PER_S),
        ("100 B", 100, "plain", MESSAGES_PER_S),
        ("1 KB, lz4", 1_024, "lz4", replace(MB_PER_S, bar=Bar("ratio", "at least", 1.9))),
        ("1 KB, idempotent", 1_024, "idempotent", replace(MB_PER_S, bar=Bar("ratio", "at least", 1.3))),
    ):
        load: dict[str, Any] = {
            "count": context.scaled(16_000, 5_000),
            "size": size,
            "connections": 4,
            "in_flight": 5,
        }
        load |= {"records": RAW_BATCH_BYTES // size, "kind": kind}
        metrics = [rate, LITTLE_CPU_PER_GB]
        rows += _compare_raw(context, servers, f"produce {what}, raw driver", metrics, load)
    return rows


def _compare_raw(
    context: Context, servers: Sequence[Target], name: str, metrics: Sequence[Metric], load: dict[str, Any]
) -> list[Row]:
    def measure(server: Target) -> Figures:
        with topic(server, PARTITIONS) as made:
            return measure_produce(server, made, load, driver="raw_produce")

    return context.compare(name, metrics, servers, measure)


def measure_produce(
    server: Target,
    name: str,
    load: dict[str, Any],
    partitions: int = PARTITIONS,
    driver: str = "produce",
    clients: int = 1,
) -> Figures:
    """Produce to an existing topic, and measure the CPU time of the broker."""
    before = server.cpu_seconds()
    place: dict[str, Any] = {"bootstrap": server.bootstrap, "topic": name, "partitions": partitions}
    done = _together([start_driver(driver, **place, **load) for _ in range(clients)], driver)
    spent = (server.cpu_seconds() - before) / len(server.pids)
    return {
        "mb_per_s": done["bytes"] / MB / done["seconds"],
        "messages_per_s": done["messages"] / done["seconds"],
        "cpu_s_per_gb": spent / done["bytes"] * GB,
        "cpu_us_per_message": spent / done["messages"] * 1e6,
    }


def _together(drivers: Sequence[subprocess.Popen[str]], name: str) -> Figures:
    """Sum of concurrent drivers, from the start of the first to the end of the last."""
    done = [finish_driver(name, driver) for driver in drivers]
    began_at = min(figures.get("began_at", 0) for figures in done)
    ended_at = max(figures.get("began_at", 0) + figures["seconds"] for figures in done)
    total = {key: sum(figures[key] for figures in done) for key in ("messages", "bytes")}
    return total | {"seconds": ended_at - began_at}


def _compare(
    context: Context,
    servers: Sequence[Target],
    name: str,
    metrics: Sequence[Metric],
    load: dict[str, Any],
    clients: int = 1,
) -> list[Row]:
    def measure(server: Target) -> Figures:
        with topic(server, PARTITIONS) as made:
            return measure_produce(server, made, load, clients=clients)

    return context.compare(name, metrics, servers, measure)
