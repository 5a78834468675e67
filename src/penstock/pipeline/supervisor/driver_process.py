"""Driver process of a supervisor: started when there is work, restarted with back-off when it dies."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.clock import SystemClock
from penstock.pipeline.supervisor.backoff import backoff_ms

_STEADY_MS = 120_000
"""Lifetime in milliseconds after which the death of a driver counts as the first one for the back-off."""
_QUEUED = 10_000


class DriverProcess:
    def __init__(self, settings: Mapping[str, Any], log_path: str) -> None:
        self._settings = settings
        self._log_path = log_path
        self._process: subprocess.Popen[str] | None = None
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue(_QUEUED)
        self._deaths = 0
        self._started_ms = 0
        self._ended_ms = 0
        self._clock = SystemClock()
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ensure(self) -> str | None:
        """Start the process if it is not running and its back-off has passed. Returns the reason why the previous
        process ended, once.
        """
        if self.is_alive:
            return None
        reason = None
        if self._process is not None:
            code = self._process.returncode
            reason = f"the driver ended with {code}; its log is {self._log_path}"
            self._kill_group(self._process.pid)
            self._process = None
            self._ended_ms = self._clock.now_ms()
            self._deaths = 1 if self._ended_ms - self._started_ms > _STEADY_MS else self._deaths + 1
        if self._clock.now_ms() >= self._ended_ms + backoff_ms(self._deaths):
            self._start()
        return reason

    def send(self, command: Mapping[str, Any]) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with self._lock, suppress(BrokenPipeError, OSError):
                process.stdin.write(json.dumps(command) + "\n")
                process.stdin.flush()

    def received(self) -> list[dict[str, Any]]:
        """Reports since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._reports.get_nowait())
        return found

    def kill(self) -> None:
        """Kill the driver and its Java process, and wait for the driver to end."""
        if self._process is not None:
            self._kill_group(self._process.pid)
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        os.makedirs(os.path.dirname(self._log_path), exist_ok=True)
        command = [sys.executable, "-m", "penstock.pipeline.supervisor.driver", json.dumps(self._settings)]
        with open(self._log_path, "w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._process, self._started_ms = process, self._clock.now_ms()
        threading.Thread(target=self._read, args=(process,), name="driver-reports", daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError, queue.Full):
                self._reports.put_nowait(json.loads(line))

    def _kill_group(self, pid: int) -> None:
        """Kill the remaining processes of the driver's process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
