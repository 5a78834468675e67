"""Runs a program of bench/drivers as a process with a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.kafka_install import ROOT

Figures = dict[str, float]
TIMEOUT_S = 900.0


class DriverFailed(Exception):
    """A driver failed or ran out of time; the message contains the end of its output."""


def run_driver(name: str, **parameters: Any) -> Figures:
    return finish_driver(name, start_driver(name, **parameters))


def start_driver(name: str, *, nice: int = 0, **parameters: Any) -> subprocess.Popen[str]:
    """Start a driver beside others; `finish_driver` waits for its figures."""
    command = ["nice", "-n", str(nice), sys.executable, "-m", f"bench.drivers.{name}", json.dumps(parameters)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_driver(name: str, process: subprocess.Popen[str]) -> Figures:
    try:
        out, said = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise DriverFailed(f"driver {name} took longer than {TIMEOUT_S:.0f} s") from None
    if process.returncode != 0:
        raise DriverFailed(f"driver {name} failed: {said.strip()[-1500:]}")
    figures: Figures = json.loads(out.splitlines()[-1])
    return figures


def drive(work: Callable[..., Figures]) -> None:
    """Main function of a driver: call `work` with the parameters of the command line, and print its figures."""
    print(json.dumps(work(**json.loads(sys.argv[1]))))
