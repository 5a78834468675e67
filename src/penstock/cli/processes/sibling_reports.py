"""Metrics and health of all brokers of a machine. The brokers share one HTTP port, so each of them reports for all.

Metrics are read from all brokers at each request. Health is read every second, so that `/health` responds at once even
if a broker hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from penstock.cli.processes.report_sockets import ReportSockets
from penstock.gateway.health import BrokerState, Health

HEALTH_SECONDS = 1.0

_NOT_SERVING = Health(BrokerState.STARTING)


class SocketSiblingReports:
    """Sibling reports of a broker's environment, read over sockets."""

    def __init__(self, socket: Path) -> None:
        self._sockets = ReportSockets(socket)
        self._own_name = socket.name
        self._own_health: Callable[[], Health] = lambda: _NOT_SERVING
        self._others: dict[str, Health] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self, metrics: Callable[[], Awaitable[bytes]], health: Callable[[], Health]) -> None:
        async def encoded_health() -> bytes:
            return msgspec.json.encode(health())

        self._own_health = health
        await self._sockets.start({"metrics": metrics, "health": encoded_health})
        await self._read_health()
        self._reading = asyncio.ensure_future(self._keep_reading())

    def close(self) -> None:
        self._sockets.close()
        if self._reading is not None:
            self._reading.cancel()

    async def metrics(self) -> bytes:
        from penstock.observability.exposition import merge

        return await asyncio.to_thread(merge, await self._sockets.read("metrics"), "broker")

    def health(self) -> Health:
        return together([self._own_health(), *self._others.values()])

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_SECONDS)
            await self._read_health()

    async def _read_health(self) -> None:
        reports = await self._sockets.read("health")
        self._others = {name: _decoded(report) for name, report in reports.items() if name != self._own_name}


def together(parts: Iterable[Health]) -> Health:
    """Combine the health of several brokers: the result is serving if all of them are serving."""
    all_parts = tuple(parts)
    states = [part.state for part in all_parts]
    return Health(
        next((state for state in states if state is not BrokerState.SERVING), BrokerState.SERVING),
        tuple(log for part in all_parts for log in part.failed_logs),
        any(part.is_disk_full for part in all_parts),
        tuple(damage for part in all_parts for damage in part.damage),
        tuple(alarm for part in all_parts for alarm in part.alarms),
    )


def _decoded(report: bytes) -> Health:
    try:
        return msgspec.json.decode(report, type=Health)
    except msgspec.MsgspecError:
        return _NOT_SERVING
