"""One broker on a simulated machine, with a session in the coordination store: started, stopped, crashed, and
started again on what is left of its disk.

Several brokers may share a machine (`machine_members`) and lose power together. A broker may be paused and be
kept from the store; its session then expires after its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime

from penstock.cluster.memory import Faults, MemoryEnsemble
from penstock.config import BrokerConfig, LoggingLevel
from penstock.errors import BrokerError
from penstock.observability.log_lines import TRACEBACK
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.security.acl import Operation, Principal, ResourceType
from penstock.security.scram import ScramMechanism
from penstock.server.broker import Broker
from penstock.storage.data_directory import CLEAN_STOP_FILE
from simulation.machine.disk import SimulatedDisk
from simulation.machine.host import SimulatedHost, SimulatedWorld
from simulation.machine.machine import SimulatedMachine
from simulation.machine.process import SimulatedCrash
from simulation.models.history import InvariantViolated
from simulation.scenarios.store_access import EnsembleAccess, SocketAccess, StoreAccess
from simulation.scenarios.store_host import StoreHost

PORT = 9092
_STOP_SECONDS = 60.0
_IN_FLIGHT_SECONDS = 0.1
"""Time after the end of a process in which the store may apply its last requests."""
"""A broker that takes longer to stop waits for a shared store that is out of reach."""


class BrokerHost:
    cache_lost = False
    """Whether unsynced bytes may be gone since everything was read last."""
    is_suspect = False
    """Whether the disk may lack acknowledged records; false again after the next registration."""
    is_lost = False
    """Whether the broker has reported that its session is lost; its process has to start again."""
    down_until = 0.0
    """The virtual time before which the broker is not started again."""
    _broker: Broker | None = None
    _failed_syncs = 0
    _clones = 0
    _is_clean = False
    _is_serving = False
    _died_at = -_IN_FLIGHT_SECONDS
    _is_end_noted = True
    """Whether the end of the last process was noted on the machine."""

    def __init__(
        self,
        world: SimulatedWorld,
        node_id: int,
        settings: Mapping[str, str],
        ensemble: MemoryEnsemble,
        session_seconds: float,
        machine: SimulatedMachine | None = None,
        *,
        name: str = "",
        is_store_embedded: bool = False,
        store_host: StoreHost | None = None,
    ) -> None:
        """`machine` is None for a broker with a machine of its own. An embedded store ends its session with
        the process; the session in a shared store is open until its timeout. A broker with a `store_host`
        reaches the store over a socket.
        """
        name = name or f"broker-{node_id}"
        self.node_id = node_id
        self.host = SimulatedHost(world, name, machine)
        self.machine_members: tuple[BrokerHost, ...] = (self,)
        """The brokers on this machine, including this one."""
        self.problems: list[str] = []
        """The tracebacks that the broker has logged."""
        self.store_faults = Faults(world.random(f"{name}/store"), max_delay_s=0.01)
        self.is_weak = settings.get("durability") == "os"
        """Whether topics without a `durability` of their own have `os`, as internal topics do."""
        address = {"host": "0.0.0.0", "port": str(PORT), "advertised.listeners": f"{name}:{PORT}"}
        self.settings = {**address, "http.port": "-1", **settings, "node.id": str(node_id)}
        self._world = world
        self._raw_settings = settings
        self._ensemble = ensemble
        self._session_seconds = session_seconds
        self._is_store_embedded = is_store_embedded
        self._store_host = store_host
        self._store: StoreAccess = EnsembleAccess(ensemble, self.store_faults, session_seconds)
        if store_host is not None:
            self._store = SocketAccess(world, name, session_seconds)
        self._changing = asyncio.Lock()
        self._disconnect_reasons: set[str] = set()

    @property
    def is_running(self) -> bool:
        return self.host.process is not None

    @property
    def is_serving(self) -> bool:
        return self._is_serving and self.is_running and not self.is_lost

    @property
    def may_write_state(self) -> bool:
        """Whether the store may still apply a write of the process, which runs or has just ended."""
        is_dying = self._world.loop.time() < self._died_at + _IN_FLIGHT_SECONDS
        return self._store.has_requests_in_flight() or (self._store_host is not None and is_dying)

    @property
    def is_paused(self) -> bool:
        return self.host.process is not None and self.host.process.is_paused

    def replicas(self) -> Iterator[Replica]:
        """Return the replicas of a broker that serves."""
        assert self._broker is not None
        return iter(self._broker._replicas)

    def knows_group(self, group_id: str) -> bool:
        """Whether a broker that serves knows configs of this group."""
        assert self._broker is not None
        return group_id in self._broker._metadata.image.group_configs

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark of a partition; None where this broker does not serve it now."""
        if self._broker is None or not self._is_serving:
            return None
        try:
            return self._broker._replicas.get(topic, partition).log.high_watermark
        except BrokerError:
            return None

    def account_iterations(self, user: str) -> int | None:
        """SCRAM iterations that a login of a user uses; None where the user cannot log in."""
        assert self._broker is not None
        accounts = self._broker._security.accounts(self._broker._context)
        account, record = accounts.scram(user, ScramMechanism.SHA_256)
        return None if account is None else record.iterations

    def permits(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        """Whether the rules that this broker applies give a right; None where it does not serve now."""
        if self._broker is None or not self._is_serving:
            return None
        policy = self._broker._context.authorization.policy
        return bool(policy.permitted(principal, host, kind, name) >> operation & 1)

    # --- starting and stopping

    async def start(self) -> None:
        """Start the broker; SimulatedCrash when the process died meanwhile. Any other exception is an error
        of the broker.
        """
        async with self._changing:
            self._is_clean = self.is_lost = self._is_end_noted = False
            if self._is_store_embedded:
                await self._store.close()
            process, environment = self.host.start(self._store.open())
            if self._store_host is not None:
                self._store_host.add_holder(process)
            log = Logger(self.host.clock, self._write_log, self._format_log, LoggingLevel.DEBUG)

            async def start() -> None:
                self._broker = broker = Broker(BrokerConfig(self.settings), environment, log, self._on_lost)
                await broker.start()

            await process.run(start())
            self._is_serving = True
            # A broker leaves the in-sync sets that it may fall short of before it registers.
            self.is_suspect = False

    async def stop(self) -> None:
        """Stop the broker in order. After a clean stop a power loss may not lose anything.

        SimulatedCrash when the process died meanwhile.
        """
        async with self._changing:
            if self._broker is None or self.host.process is None:
                raise SimulatedCrash
            async with asyncio.timeout(None if self._is_store_embedded else _STOP_SECONDS):
                self._is_serving = False
                await self.host.process.run(self._broker.stop())
                self._is_clean = self.host.disk.exists(CLEAN_STOP_FILE)
                self.crash()

    def crash(self) -> None:
        self.host.crash()
        # The kernel may drop pages as clean after a failed fsync: unsynced bytes may be gone as after a power loss.
        failed = self.host.disk.faults.failed_syncs
        self._on_death(cache_lost=failed > self._failed_syncs)
        self._failed_syncs = failed

    def power_loss(self) -> None:
        """Switch off the machine with every broker on it."""
        for member in self.machine_members:
            member._lose_power()

    def _lose_power(self) -> None:
        if self._is_clean and not self.is_running:
            self.lose_power_while_stopped()
        else:
            self.host.power_loss()
            self._on_death(cache_lost=True)

    def lose_power_while_stopped(self) -> None:
        """Switch the machine off and on; after a clean stop nothing may be lost."""
        self.cache_lost = self.cache_lost or not self._is_clean
        self.host.power_loss()

    def note_end(self) -> None:
        """Note the end of a process that died within a disk operation."""
        if not self.is_running and not self._is_end_noted:
            self.crash()

    def _on_death(self, *, cache_lost: bool) -> None:
        self.cache_lost, self.is_suspect = self.cache_lost or cache_lost, self.is_suspect or cache_lost
        self._is_end_noted = True
        self._died_at = self._world.loop.time()
        self._disconnect_reasons.discard("paused")
        if not self._is_store_embedded:
            self._store.cut_off()
        served, self._is_serving = self._is_serving, False
        if served and self.host.disk.has(CLEAN_STOP_FILE):
            raise InvariantViolated("clean stop", "the mark of an earlier clean stop is still there")

    # --- other disks

    def empty_disk(self) -> None:
        """Replace the disk of a stopped broker by an empty one."""
        self.host.empty_disk()
        self.is_suspect = True

    def restore(self, copy: SimulatedDisk) -> None:
        """Replace the data directory of a stopped broker by a copy."""
        self.host.restore(copy)
        self.is_suspect = True

    def clone(self, copy: SimulatedDisk, machine: SimulatedMachine | None) -> BrokerHost:
        """Make another broker with the same node id on a copy of a data directory; it is not among the
        members of the stage.
        """
        self._clones += 1
        name = f"{self.host.name}-clone-{self._clones}"
        arguments = (self._world, self.node_id, self._raw_settings, self._ensemble, self._session_seconds)
        clone = BrokerHost(*arguments, machine, name=name, store_host=self._store_host)
        clone.host.restore(copy)
        return clone

    # --- out of reach

    def pause(self) -> None:
        self.host.pause()
        self.disconnect_store("paused")

    def resume(self) -> None:
        """Resume the process at once, and its connection to the store a little later."""
        self.host.resume()
        self._world.network.later(lambda: self.reconnect_store("paused"))

    def disconnect_store(self, reason: str) -> None:
        """Keep the broker from the store."""
        self._disconnect_reasons.add(reason)
        self._store.cut_off()

    def reconnect_store(self, reason: str) -> None:
        self._disconnect_reasons.discard(reason)
        if self.is_running and not self._disconnect_reasons:
            self._store.reconnect()

    def expire_session(self) -> None:
        self._store.expire()

    def _on_lost(self) -> None:
        self.is_lost = True
        # After a disk error a broker trusts none of its logs and leaves the in-sync sets that it shares.
        self.is_suspect = self.is_suspect or any(replica.log.failed for replica in self.replicas())

    # --- the log

    def _format_log(
        self, now: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]
    ) -> str:
        if TRACEBACK in fields:
            self.problems.append(f"{message}\n{fields[TRACEBACK]}")
        return f"{level.value}: {message} " + " ".join(f"{name}={value}" for name, value in fields.items())

    def _write_log(self, line: str) -> None:
        self._world.trace.record("log", self.host.name, line.rstrip("\n"))
