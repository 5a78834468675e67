"""A broker on a simulated machine: started, stopped, crashed, and started again on what is left of its disk.

`cache_lost` says that unsynced bytes may be gone since everything was read last. `problems` are the
tracebacks that the broker has logged.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.config import BrokerConfig, LoggingLevel
from penstock.errors import BrokerError
from penstock.observability.log_lines import TRACEBACK
from penstock.observability.logs import Logger
from penstock.server.broker import Broker
from penstock.simulation.machine.host import SimulatedHost, SimulatedWorld
from penstock.simulation.machine.machine import SimulatedMachine
from penstock.simulation.models.history import InvariantViolated
from penstock.storage.data_directory import CLEAN_STOP_FILE

PORT = 9092


class BrokerHost:
    def __init__(
        self,
        world: SimulatedWorld,
        name: str,
        settings: Mapping[str, str],
        ensemble: MemoryEnsemble | None = None,
        session_seconds: float = 6.0,
        machine: SimulatedMachine | None = None,
    ) -> None:
        """`ensemble` is the coordination store of the broker's cluster, `machine` a machine that it shares
        with other brokers. Without them the broker has its own.
        """
        self.host = SimulatedHost(world, name, machine)
        self.cache_lost = False
        self.problems: list[str] = []
        self.store_faults = Faults(world.random(f"{name}/store"), max_delay_s=0.01)
        self.is_weak = settings.get("durability") == "os"
        """Whether topics without a `durability` of their own have `os`, as internal topics do."""
        self._world = world
        self.settings = {
            "host": "0.0.0.0",
            "port": str(PORT),
            "advertised.listeners": f"{name}:{PORT}",
            "http.port": "-1",
            **settings,
        }
        self._ensemble = ensemble or MemoryEnsemble()
        self._session_seconds = session_seconds
        self._store: MemoryStore | None = None
        self._broker: Broker | None = None
        self._failed_syncs = 0
        self._is_clean = False
        self._is_serving = False

    @property
    def is_running(self) -> bool:
        return self.host.process is not None

    async def start(self) -> None:
        """Start the broker; SimulatedCrash when the process died meanwhile. Any other exception is an error
        of the broker.
        """
        self._is_clean = False
        await self._end_session()
        self._store = self._ensemble.client(self.store_faults, self._session_seconds)
        process, environment = self.host.start(self._store)
        log = Logger(self.host.clock, self._write_log, self._format_log, LoggingLevel.DEBUG)

        async def start() -> None:
            self._broker = broker = Broker(BrokerConfig(self.settings), environment, log, self._on_lost)
            await broker.start()

        await process.run(start())
        self._is_serving = True

    async def _end_session(self) -> None:
        if self._store is not None:
            await self._store.close()

    def _on_lost(self) -> None:
        """Called when the broker has lost its session; a broker alone has none to lose."""

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark of a partition; None where this broker does not serve it now."""
        if self._broker is None or not self._is_serving:
            return None
        try:
            return self._broker._replicas.get(topic, partition).log.high_watermark
        except BrokerError:
            return None

    async def stop(self) -> None:
        """Stop the broker in order. After a clean stop a power loss may not lose anything.

        SimulatedCrash when the process died meanwhile.
        """
        assert self._broker is not None
        assert self.host.process is not None
        self._is_serving = False
        await self.host.process.run(self._broker.stop())
        self._is_clean = self.host.disk.exists(CLEAN_STOP_FILE)
        self.crash()

    def crash(self) -> None:
        self.host.crash()
        self._note_failed_syncs()
        self._check_mark()

    def power_loss(self) -> None:
        self.cache_lost = True
        self.host.power_loss()
        self._check_mark()

    def lose_power_while_stopped(self) -> None:
        """Switch the machine off and on; after a clean stop nothing may be lost."""
        self.cache_lost = self.cache_lost or not self._is_clean
        self.host.power_loss()

    def _check_mark(self) -> None:
        """Check that a broker that served and then died has not left the mark of a clean stop."""
        served, self._is_serving = self._is_serving, False
        if served and self.host.disk.has(CLEAN_STOP_FILE):
            raise InvariantViolated("clean stop", "the mark of an earlier clean stop is still there")

    def _note_failed_syncs(self) -> None:
        """Note failed fsyncs: the kernel may drop the pages as clean, so unsynced bytes may be gone as after
        a power loss.
        """
        failed = self.host.disk.faults.failed_syncs
        self.cache_lost = self.cache_lost or failed > self._failed_syncs
        self._failed_syncs = failed

    def _format_log(
        self, now: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]
    ) -> str:
        if TRACEBACK in fields:
            self.problems.append(f"{message}\n{fields[TRACEBACK]}")
        return f"{level.value}: {message} " + " ".join(f"{name}={value}" for name, value in fields.items())

    def _write_log(self, line: str) -> None:
        self._world.trace.record("log", self.host.name, line.rstrip("\n"))


def broker_settings(random: random.Random) -> dict[str, str]:
    """Draw small limits and short intervals, so that a few seconds show everything that a broker does in
    weeks.
    """
    return {
        "auto.create.topics.enable": "false",
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((100, 400, 2_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((100, 1_000))),
        "log.retention.check.interval.ms": str(random.choice((200, 1_000))),
        "log.cleaner.backoff.ms": str(random.choice((100, 500))),
        "log.flush.checkpoint.bytes": str(random.choice((2_000, 20_000, 1_000_000))),
        "log.open.files.max": str(random.choice((16, 7_000))),
        "log.dir.min.free.bytes": str(random.choice((0, 3_000))),
        "durability": random.choice(("auto", "auto", "fsync", "os")),
        "group.initial.rebalance.delay.ms": str(random.choice((0, 30, 200))),
        "group.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": str(random.choice((1_500, 15_000))),
        "offsets.topic.num.partitions": str(random.choice((1, 2, 5))),
    }
