"""Several brokers in the test's own process: one coordination store in memory, real logs, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from penstock.clock import SystemClock
from penstock.cluster.memory import MemoryEnsemble
from penstock.config import BrokerConfig
from penstock.errors import BrokerError
from penstock.net.network import TcpNetwork
from penstock.observability.logs import Logger
from penstock.server.broker import Broker
from penstock.server.environment import Environment
from penstock.storage.disk import RealDisk
from penstock.threads import ThreadPools
from support.harness import Harness

SHORT_LAG = {"replica_lag_time_max_ms": "2000"}
"""Setting for tests that wait until a follower leaves the in-sync set; otherwise a slow machine must not remove one."""


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except BrokerError:
        return False


class Brokers:
    def __init__(self, directory: Path, **settings: str) -> None:
        self.ensemble = MemoryEnsemble()
        self.running: dict[int, Broker] = {}
        self.lines: list[str] = []
        self._directory = directory
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    async def start(self, number: int) -> Harness:
        directory = self._directory / str(number)
        directory.mkdir(exist_ok=True)
        environment = Environment(
            SystemClock(),
            Random(number),
            RealDisk(str(directory)),
            TcpNetwork(),
            ThreadPools(),
            self.ensemble.client(),
            machine_id=f"machine-{number}",
        )
        settings = {
            "node.id": str(number),
            "port": "0",
            "http.port": "-1",
            "log.dir": str(directory),
            "replica.lag.time.max.ms": "30000",
            "authorization.mode": "off",  # tests of authentication need no rights
            **self._settings,
        }
        log = Logger(
            SystemClock(), self.lines.append, lambda now, level, text, fields: f"{level} {text} {fields}"
        )
        broker = Broker(BrokerConfig(settings), environment, log)
        try:
            await broker.start()
        except OSError:
            await broker.abandon()
            raise
        self.running[number] = broker
        return Harness(broker)

    async def stop(self, number: int) -> None:
        await self.running.pop(number).stop()

    def members(self, number: int, topic: str, partition: int = 0) -> set[int]:
        """In-sync replicas in the metadata of this broker."""
        found = self.running[number]._metadata.image.topics[topic]
        return set(found.partitions[partition].isr)


def run(directory: Path, scenario: Callable[[Brokers], Awaitable[None]], **settings: str) -> None:
    async def body() -> None:
        brokers = Brokers(directory, **settings)
        try:
            await scenario(brokers)
        finally:
            for number in tuple(brokers.running):
                await brokers.stop(number)
        assert not [line for line in brokers.lines if "Traceback" in line]

    asyncio.run(body())
