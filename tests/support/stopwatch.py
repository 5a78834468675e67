"""Elapsed time without the time that processes waited for a processor.

Tests that bound a latency would fail on a busy machine for no fault of the broker. Linux counts, for each thread, the
time that the thread was ready to run and did not (`/proc/PID/task/TID/schedstat`), and a stopwatch subtracts it. An
idle machine and a system without these counts show the elapsed time unchanged.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


class Stopwatch:
    """Starts when it is made. Subtracts the waits of this process and of the processes `pids`."""

    def __init__(self, *pids: int) -> None:
        self._pids = (os.getpid(), *pids)
        self.restart()

    def restart(self) -> None:
        self._started = time.monotonic()
        self._before = {pid: _waits(pid) for pid in self._pids}

    @property
    def seconds(self) -> float:
        elapsed = time.monotonic() - self._started
        return max(0.0, elapsed - sum(self._waited(pid) for pid in self._pids))

    def _waited(self, pid: int) -> float:
        """The longest wait of a thread: the threads of a process wait at the same time."""
        before = self._before[pid]
        return max((total - before.get(thread, 0.0) for thread, total in _waits(pid).items()), default=0.0)


def _waits(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has waited for a processor since it started."""
    waits = {}
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):
            waits[file.parent.name] = int(file.read_text().split()[1]) / 1e9
    return waits
