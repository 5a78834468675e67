"""Several gateway processes on one port: the kernel spreads connections among them, this one looks after them.

A worker that ends is replaced after a moment; a signal to end goes to all of them, and their end is waited for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

RESTART_SECONDS = 1.0
POLL_SECONDS = 0.2


class _Ended(Exception):
    """A signal asks for the end."""


def run_workers(count: int, arguments: Sequence[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "gateway",
        *arguments,
        "--worker-of",
        str(os.getpid()),
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        workers += [subprocess.Popen(command) for _ in range(count)]
        print(f"penstock serves HTTP with {count} workers", flush=True)
        while True:
            time.sleep(POLL_SECONDS)
            ended = [worker for worker in workers if worker.poll() is not None]
            for worker in ended:
                print(
                    f"a worker ended with code {worker.returncode}; another takes its place", file=sys.stderr
                )
                time.sleep(RESTART_SECONDS)
                workers.remove(worker)
                workers.append(subprocess.Popen(command))
    except _Ended:
        pass
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def _end(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    raise _Ended
