"""Several gateway processes on one port: the kernel distributes connections, this process supervises.

A worker that ends is replaced after a second. SIGTERM and SIGINT stop all workers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from penstock.cli.process_setup import on_signals
from penstock.cli.processes.supervisor import ProcessSupervisor


def run_workers(count: int, arguments: Sequence[str]) -> None:
    with TemporaryDirectory(prefix="penstock-gateway-") as sockets:
        asyncio.run(_supervise(count, arguments, sockets))


async def _supervise(count: int, arguments: Sequence[str], sockets: str) -> None:
    def command(number: int, _: int) -> list[str]:
        as_worker = ["--worker-of", str(os.getpid()), "--worker-socket", f"{sockets}/{number}"]
        return [sys.executable, "-m", "penstock.cli.main", "gateway", *arguments, *as_worker]

    stop = asyncio.Event()
    on_signals(stop.set)
    supervisor = ProcessSupervisor(command, on_end=_report_end)
    supervisor.add(range(count))
    print(f"penstock serves HTTP with {count} workers", flush=True)
    await stop.wait()
    await supervisor.stop_all()


def _report_end(number: int, code: int) -> None:
    print(f"gateway worker {number} ended with exit code {code}; restarting it", file=sys.stderr)
