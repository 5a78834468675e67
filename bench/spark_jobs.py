"""A warm Spark session in a process that runs one job after another."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from bench.driver import DriverFailed, Figures
from bench.kafka_install import ROOT
from bench.measure import MB, cpu_seconds
from bench.spark_install import Connector

SAMPLE_SECONDS = 0.2


class SparkJobs:
    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )

    @classmethod
    def ours(cls, log: Path) -> SparkJobs:
        return cls([sys.executable, "-m", "bench.drivers.spark_penstock"], log)

    @classmethod
    def of_the_connector(cls, connector: Connector, log: Path) -> SparkJobs:
        program = ("-m", "bench.drivers.spark_kafka")
        return cls([str(connector.python), *program, ",".join(map(str, connector.jars))], log)

    def run(self, **job: Any) -> Figures:
        """Seconds of the job, CPU time of Spark, and peak memory of all its Python workers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = cpu_seconds(self._process.pid)
        with _Watch(self._process.pid) as watch:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(job) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise DriverFailed(f"Spark ended: {self._log.read_text(errors='replace')[-1500:]}")
        figures: Figures = json.loads(line)
        return {
            **figures,
            "cpu_s": cpu_seconds(self._process.pid) - before,
            "workers_mb": watch.most_mb,
        }

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Watch:
    """Sampler of the memory of Spark's Python workers, several times per second."""

    def __init__(self, pid: int) -> None:
        self.most_mb = 0.0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.most_mb = max(self.most_mb, _workers_mb(self._pid))


def _workers_mb(pid: int) -> float:
    total = 0
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if "java" not in process.name():
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return float(total / MB)


def timed(command: Sequence[str]) -> float:
    """Seconds of a command, which must succeed."""
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return time.monotonic() - began
