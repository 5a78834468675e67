"""Metrics of all workers of a gateway: the worker that receives the request merges them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.cli.processes.report_sockets import ReportSockets
from penstock.threads import Threads

METRICS = "metrics"


class WorkerMetrics:
    def __init__(self, socket: Path, own: Callable[[], Awaitable[bytes]], threads: Threads) -> None:
        """`socket` is the path where this worker serves its metrics; `own` returns them."""
        self._sockets = ReportSockets(socket)
        self._own = own
        self._threads = threads

    async def start(self) -> None:
        await self._sockets.start({METRICS: self._own})

    def close(self) -> None:
        self._sockets.close()

    async def metrics(self) -> bytes:
        from penstock.observability.exposition import merge

        texts = await self._sockets.read(METRICS)
        return await self._threads.run("read", lambda: merge(texts, "worker"))
