"""Driver: a process with one Spark session that runs the pipelines of a supervisor; started by `python -m` with this
module.

Each line on its standard input is a JSON object with pipelines to run, or with leases. Each line on its output is a
JSON object with the state of all pipelines, or an event. The driver kills itself and its Java process when a lease
expires or the input ends, because the supervisor is then dead, stopped, or no longer the owner.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TextIO

from pyspark.sql import SparkSession

from penstock.clock import SystemClock
from penstock.pipeline.session import open_session
from penstock.pipeline.supervisor.worker import PipelineWorker, WorkerSettings

_LOOK_SECONDS = 0.5


class Driver:
    def __init__(self, settings: Mapping[str, Any], output: TextIO) -> None:
        self._settings = settings
        self._output = output
        self._workers: dict[str, PipelineWorker] = {}
        self._ending: list[PipelineWorker] = []
        self._deadlines: dict[str, float] = {}
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._clock = SystemClock()

    def run(self, lines: TextIO) -> None:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        for line in lines:
            command = json.loads(line)
            if "pipelines" in command:
                self._take(command["pipelines"])
            else:
                self._lease(command["leases"], float(command["lease_seconds"]))
        kill_all()

    def _take(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Start and stop workers, so that exactly the wanted pipelines run."""
        for name, worker in list(self._workers.items()):
            new = wanted.get(name)
            if new is None or (new["id"], new["revision"]) != (
                worker.wanted["id"],
                worker.wanted["revision"],
            ):
                worker.cancel()
                self._ending.append(self._workers.pop(name))
        self._ending = [each for each in self._ending if each.is_alive()]
        stopping = {each.wanted["name"] for each in self._ending}
        for name, each in wanted.items():
            if name in self._workers:
                self._workers[name].request_runs(each["run_requests"])
            elif name not in stopping:
                self._workers[name] = self._started(name, each)
                self._lease([name], float(each["lease_seconds"]))

    def _lease(self, owned: Collection[str], seconds: float) -> None:
        """Extend the leases of pipelines that the supervisor owns. A pipeline that it no longer owns keeps its last
        lease, within which it has to stop.
        """
        deadline = self._clock.monotonic() + seconds
        active = {*self._workers, *(each.wanted["name"] for each in self._ending if each.is_alive())}
        with self._lock:
            kept = {name: at for name, at in self._deadlines.items() if name in active}
            self._deadlines = kept | {name: deadline for name in owned if name in active}

    def _started(self, name: str, wanted: Mapping[str, Any]) -> PipelineWorker:
        settings = WorkerSettings(
            self._settings["bootstrap"], self._settings["checkpoints"], self._settings["is_once"]
        )

        def emit(event: str, fields: Mapping[str, Any]) -> None:
            self._write({"event": event, "name": name, "at_ms": self._clock.now_ms(), **fields})

        worker = PipelineWorker(wanted, settings, self._open_session, emit)
        worker.start()
        return worker

    def _watch(self) -> None:
        """Report states periodically. Kill the process when a lease has expired, Java has ended, or a run has exceeded
        its timeout.
        """
        pause = threading.Event()
        while not pause.wait(_LOOK_SECONDS):
            now = self._clock.monotonic()
            with self._lock:
                expired = [name for name, deadline in self._deadlines.items() if deadline < now]
            if expired:
                self._end(f"the lease of {expired[0]} has expired", expired[0])
            if self._spark is not None and self._is_java_gone():
                self._end("Spark's Java process has ended", next(iter(self._workers), ""))
            self._check_timeouts()
            self._report()

    def _check_timeouts(self) -> None:
        for name, worker in list(self._workers.items()):
            if worker.overdue_ms(self._clock.now_ms()) > 0:
                reason = (
                    "a run or a batch did not end within the timeout: the function or a task may never end"
                )
                self._write(
                    {"event": "timed out", "name": name, "at_ms": self._clock.now_ms(), "reason": reason}
                )
                self._end(reason, name)

    def _report(self) -> None:
        states = {}
        for name, worker in list(self._workers.items()):
            # Every call to a dead Java process fails; the next turn of `_watch` detects it.
            with suppress(Exception):
                worker.refresh()
            states[name] = {
                **asdict(worker.shown(self._clock.now_ms())),
                "is_alive": worker.is_alive(),
                "revision": worker.wanted["revision"],
            }
        stopping = [each.wanted["name"] for each in self._ending if each.is_alive()]
        self._write({"states": states, "stopping": stopping})

    def _is_java_gone(self) -> bool:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        return process is not None and process.poll() is not None

    def _open_session(self) -> SparkSession:
        with self._session_lock:
            if self._spark is None:
                settings = {
                    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
                    "spark.scheduler.mode": "FAIR",
                    **self._settings["conf"],
                }
                self._spark = open_session("penstock pipelines", self._settings["master"], settings)
            return self._spark

    def _end(self, reason: str, name: str) -> None:
        self._write({"event": "driver ended", "name": name, "at_ms": self._clock.now_ms(), "reason": reason})
        kill_all()

    def _write(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            try:
                self._output.write(json.dumps(message) + "\n")
                self._output.flush()
            except (BrokenPipeError, ValueError):
                kill_all()


def kill_all() -> None:
    """Kill this process and its process group, which contains Java."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    # User functions may print. Standard output is reserved for reports, so their output is redirected to the log.
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    Driver(json.loads(sys.argv[1]), reports).run(sys.stdin)


if __name__ == "__main__":
    main()
