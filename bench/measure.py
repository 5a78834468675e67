"""Resources of a process (CPU seconds, resident memory), and statistics of figures (percentiles, median,
range).

CPU and memory are read from outside, for the server process and its children, in the same way for both
brokers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure measured in several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile: the value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its living children so far."""
    return sum(_cpu_of(process) for process in _family(pid))


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its children."""
    return float(sum(process.memory_info().rss for process in _family(pid)) / MB)


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
