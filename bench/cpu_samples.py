"""CPU time of processes, sampled twice a second, for any interval of a measurement."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bench.measure import cpu_seconds

INTERVAL_S = 0.5


class CpuSamples:
    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._samples: list[tuple[float, list[float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def cores(self, began: float, ended: float) -> list[float]:
        """CPU time of each process between two times of `perf_counter`, as a share of one core."""
        return cores_between(self._samples, began, ended)

    def _run(self) -> None:
        while True:
            self._samples.append((time.perf_counter(), [cpu_seconds(pid) for pid in self._pids]))
            if self._stop.wait(INTERVAL_S):
                return


def cores_between(samples: Sequence[tuple[float, list[float]]], began: float, ended: float) -> list[float]:
    within = [sample for sample in samples if began <= sample[0] <= ended]
    (first_at, first), (last_at, last) = within[0], within[-1]
    return [(after - before) / (last_at - first_at) for before, after in zip(first, last, strict=True)]
