"""A load of sends and receives on gateways, and the processor time that it costs in gateways and brokers.

A message is one send, and for users who wait also one receive. The cost of a message and a rate give the number
of cores that a machine needs for that rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cpu_samples import CpuSamples
from bench.driver import Figures, finish_driver, start_driver
from bench.gateways import Gateway
from bench.target import Target, settle_disk

Windows = Mapping[str, tuple[int, int]]
_SUMS = ("errors", "unsent", "lost")


@dataclass(frozen=True, slots=True)
class MailboxLoad:
    phases: Sequence[tuple[int, int]]
    """Seconds and messages per second, one phase after the other."""
    windows: Windows
    """Seconds since the start from and to which figures are wanted, by name."""
    user_ids: int
    watched: float
    """Share of the messages that go to users with a long poll."""
    polls: int = 1_000
    size: int = 1_024
    drivers: int = 1
    """Processes that share the load."""


def run_load(load: MailboxLoad, gateway: Gateway, brokers: Target) -> Figures:
    """Figures of each window: latencies, rate, and microseconds of processor time for a message."""
    settle_disk()
    pids = [gateway.pid, *brokers.pids]
    with CpuSamples(pids) as samples:
        processes = [
            start_driver("mailboxes", **_share(load, number, gateway)) for number in range(load.drivers)
        ]
        measured = [finish_driver("mailboxes", process) for process in processes]
    figures = _merge(measured)
    for window, (from_s, to_s) in load.windows.items():
        began = figures["began"]
        gateway_cores, *broker_cores = samples.cores(began + from_s, began + to_s)
        rate = max(1.0, figures[f"{window}_messages_per_s"])
        figures[f"{window}_gateway_cores"] = gateway_cores
        figures[f"{window}_broker_cores"] = sum(broker_cores)
        figures[f"{window}_gateway_us"] = gateway_cores / rate * 1e6
        figures[f"{window}_brokers_us"] = sum(broker_cores) / rate * 1e6
    return figures


def cores_for(figures: Figures, window: str, messages_per_s: float) -> tuple[float, float]:
    """Cores of gateways and of brokers for a rate, from the cost of a message in a window."""
    return (
        figures[f"{window}_gateway_us"] * messages_per_s / 1e6,
        figures[f"{window}_brokers_us"] * messages_per_s / 1e6,
    )


def _share(load: MailboxLoad, number: int, gateway: Gateway) -> dict[str, Any]:
    return {
        "port": gateway.port,
        "phases": [(seconds, rate / load.drivers) for seconds, rate in load.phases],
        "windows": load.windows,
        "polls": load.polls // load.drivers,
        "user_ids": load.user_ids,
        "watched": load.watched,
        "size": load.size,
        "users_name": f"polled-{number}",
    }


def _merge(measured: Sequence[Figures]) -> Figures:
    """Sums of counts and rates, and the worst of all other figures."""
    return {
        name: sum(figures[name] for figures in measured)
        if name in _SUMS or name.endswith("_per_s")
        else max(figures[name] for figures in measured)
        for name in measured[0]
    }
