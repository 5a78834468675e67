"""Three brokers at a billion messages per day, and in a surge to five times that rate.

Messages of 1 KB are written at fixed times with acks=all and read by one consumer. The CPU time at both rates
gives the need at ten times the rate: one event loop cannot use more than one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.comparison import Bar, Metric, Row
from bench.context import Context
from bench.cpu_samples import CpuSamples
from bench.driver import Figures, finish_driver, start_driver
from bench.scenarios.cluster_load import PARTITIONS
from bench.scenarios.produce import GB
from bench.target import Target, settle_disk
from bench.topics import topic

MESSAGES_PER_S = 11_574
SIZE = 1_024
SURGE = 5
MODEL = 10
WARM_UP_S = 5
SETTLED_MS = 100.0
NONE = Bar("value", "at most", 0.0)
CPU_PER_GB = Metric("cpu_s_per_gb", "CPU of a broker", "s/GB")
PACED = (
    Metric("paced_p50_ms", "end to end, p50", "ms"),
    Metric("paced_p99_ms", "end to end, p99", "ms", Bar("value", "at most", 30.0)),
    CPU_PER_GB,
)
SURGED = (
    Metric("unacknowledged", "not acknowledged", "messages", NONE),
    Metric("errors", "client errors", "", NONE),
    Metric("before_p99_ms", "end to end before, p99", "ms"),
    Metric("surge_p99_ms", "end to end in the surge, p99", "ms"),
    Metric("after_settled_s", "p99 below 100 ms again after", "s", Bar("value", "at most", 30.0)),
    Metric("before_cores", "CPU of the busiest broker before", "cores"),
    Metric("surge_cores", "CPU of the busiest broker in the surge", "cores"),
    Metric("model_cores", "ten times the rate, by a model", "cores", Bar("value", "at most", 1.0)),
)

Phases = list[tuple[int, int]]
Windows = dict[str, tuple[int, int]]


def end_to_end(context: Context, clusters: Sequence[Target]) -> list[Row]:
    seconds = context.scaled(30, 10)
    phases = [(WARM_UP_S + seconds, MESSAGES_PER_S)]
    windows = {"paced": (WARM_UP_S, WARM_UP_S + seconds)}

    def measure(cluster: Target) -> Figures:
        return _measure(cluster, phases, windows)

    return context.compare("3 brokers: 11,574 x 1 KB/s", PACED, clusters, measure)


def surge(context: Context, clusters: Sequence[Target]) -> list[Row]:
    """One round, because the measurement is long and its result is yes or no."""
    before_s, surge_s, after_s = 10 + WARM_UP_S, context.scaled(60, 15), context.scaled(40, 35)
    rates = (MESSAGES_PER_S, SURGE * MESSAGES_PER_S, MESSAGES_PER_S)
    phases = list(zip((before_s, surge_s, after_s), rates, strict=True))
    surge_end_s = before_s + surge_s
    windows = {
        "before": (WARM_UP_S, before_s),
        "surge": (before_s, surge_end_s),
        "after": (surge_end_s, surge_end_s + after_s),
    }

    def measure(cluster: Target) -> Figures:
        figures = _measure(cluster, phases, windows)
        return figures | {"model_cores": at_rate(figures["before_cores"], figures["surge_cores"])}

    chosen = replace(context, rounds=1, warm_ups=0)
    return chosen.compare(f"3 brokers: {surge_s} s at five times that", SURGED, clusters, measure)


def at_rate(base_cores: float, surge_cores: float) -> float:
    """CPU need at ten times the rate, extrapolated linearly from one and five times."""
    return base_cores + (surge_cores - base_cores) / (SURGE - 1) * (MODEL - 1)


def _measure(cluster: Target, phases: Phases, windows: Windows) -> Figures:
    sent_bytes = sum(seconds * rate for seconds, rate in phases) * SIZE
    with topic(cluster, PARTITIONS) as name, CpuSamples(cluster.pids) as samples:
        settle_disk()
        before = cluster.cpu_seconds()
        place: dict[str, Any] = {"bootstrap": cluster.bootstrap, "topic": name}
        reading: dict[str, Any] = {"partitions": PARTITIONS, "windows": windows, "limit_ms": SETTLED_MS}
        reader = start_driver("paced_consume", count=_count(phases), **reading, **place)
        writer = start_driver("paced_produce", size=SIZE, phases=phases, **place)
        written = finish_driver("paced_produce", writer)
        read = finish_driver("paced_consume", reader)
        spent = (cluster.cpu_seconds() - before) / len(cluster.pids)
    cores = {
        f"{window}_cores": max(samples.cores(written["began"] + from_s, written["began"] + to_s))
        for window, (from_s, to_s) in windows.items()
    }
    return {"cpu_s_per_gb": spent / sent_bytes * GB} | written | read | cores


def _count(phases: Phases) -> int:
    return sum(seconds * rate for seconds, rate in phases)
