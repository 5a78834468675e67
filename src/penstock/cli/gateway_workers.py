"""Several gateway processes on one port: the kernel distributes connections, this process supervises.

A worker that ends is replaced after a second. SIGTERM and SIGINT stop all workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from types import FrameType

RESTART_SECONDS = 1.0
POLL_SECONDS = 0.2


class _Ended(Exception):
    """SIGTERM or SIGINT was received."""


def run_workers(count: int, arguments: Sequence[str]) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _end)
    workers: dict[int, subprocess.Popen[bytes]] = {}
    with TemporaryDirectory(prefix="penstock-gateway-") as sockets:
        try:
            for number in range(count):
                workers[number] = _start(arguments, f"{sockets}/{number}")
            print(f"penstock serves HTTP with {count} workers", flush=True)
            while True:
                time.sleep(POLL_SECONDS)
                for number, worker in workers.items():
                    if worker.poll() is None:
                        continue
                    print(
                        f"a worker ended with code {worker.returncode}; another takes its place",
                        file=sys.stderr,
                    )
                    time.sleep(RESTART_SECONDS)
                    workers[number] = _start(arguments, f"{sockets}/{number}")
        except _Ended:
            pass
        finally:
            for worker in workers.values():
                worker.terminate()
            for worker in workers.values():
                worker.wait()


def _start(arguments: Sequence[str], socket: str) -> subprocess.Popen[bytes]:
    as_worker = ["--worker-of", str(os.getpid()), "--worker-socket", socket]
    return subprocess.Popen([sys.executable, "-m", "penstock.cli.main", "gateway", *arguments, *as_worker])


def _end(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    raise _Ended
