"""Process identified across commands and restarts by its pid and start time.

The pid alone is not enough: the system reuses it after the process has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec

POLL_SECONDS = 0.02
STOP_SECONDS = 30.0
"""Time in seconds that a process has to stop before it is killed."""
ZOMBIE = "Z"


class ProcessId(msgspec.Struct, frozen=True):
    pid: int
    began: str
    """Start time in the system's format, used only for comparison."""

    @property
    def is_alive(self) -> bool:
        return _start_time(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def identify(pid: int) -> ProcessId:
    """Return the identity of a child that was just started."""
    return ProcessId(pid, _start_time(pid) or "it has ended")


def end_all(processes: Iterable[ProcessId], number: signal.Signals, timeout_seconds: float) -> bool:
    """Send a signal to all processes and wait until they end. Returns False if some had to be killed."""
    running = [process for process in processes if process.is_alive]
    for process in running:
        process.send(number)
    if _wait_for_end(running, timeout_seconds):
        return True
    for process in running:
        process.send(signal.SIGKILL)
    _wait_for_end(running, timeout_seconds)
    return False


def _wait_for_end(processes: list[ProcessId], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while any(process.is_alive for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _start_time(pid: int) -> str | None:
    """Return the start time of a process; None if it does not exist or is a zombie."""
    if not os.path.isdir("/proc/self"):
        return _start_time_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == ZOMBIE else f"{boot}/{fields[19]}"


def _start_time_by_ps(pid: int) -> str | None:
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, began = asked.stdout.strip().partition(" ")
    return None if not state or state.startswith(ZOMBIE) else began.strip()
