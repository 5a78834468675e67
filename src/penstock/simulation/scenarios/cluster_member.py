"""One broker of a simulated cluster, with a session in the shared coordination store.

Several brokers may share a machine (`machine_members`) and lose power together. A broker may be paused and be
kept from the store; its session then expires after its timeout. `is_suspect` says that the disk may lack
acknowledged records; it is false again after the next registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from penstock.cluster.memory import MemoryEnsemble
from penstock.replication.replica import Replica
from penstock.simulation.machine.disk import SimulatedDisk
from penstock.simulation.machine.host import SimulatedWorld
from penstock.simulation.machine.machine import SimulatedMachine
from penstock.simulation.machine.process import SimulatedCrash
from penstock.simulation.scenarios.broker_host import BrokerHost

STORE_HOST = "store"
_STOP_SECONDS = 60.0


class ClusterMember(BrokerHost):
    def __init__(
        self,
        world: SimulatedWorld,
        node_id: int,
        settings: Mapping[str, str],
        ensemble: MemoryEnsemble,
        session_seconds: float,
        machine: SimulatedMachine | None = None,
        name: str = "",
    ) -> None:
        """`machine` is None for a broker with a machine of its own."""
        super().__init__(
            world,
            name or f"broker-{node_id}",
            {**settings, "node.id": str(node_id)},
            ensemble,
            session_seconds,
            machine,
        )
        self.node_id = node_id
        self._raw_settings = settings
        self._clones = 0
        self.machine_members: tuple[ClusterMember, ...] = (self,)
        """The brokers on this machine, including this one."""
        self.is_lost = False
        """Whether the broker has reported that its session is lost; its process has to start again."""
        self.is_suspect = False
        self.down_until = 0.0
        """The virtual time before which the broker is not started again."""
        self._is_end_noted = True
        """Whether the end of the last process was noted on the machine."""
        self._changing = asyncio.Lock()
        self._disconnect_reasons: set[str] = set()

    @property
    def is_serving(self) -> bool:
        return self._is_serving and self.is_running and not self.is_lost

    @property
    def is_paused(self) -> bool:
        return self.host.process is not None and self.host.process.is_paused

    def replicas(self) -> Iterator[Replica]:
        """Return the replicas of a broker that serves."""
        assert self._broker is not None
        return iter(self._broker._replicas)

    async def start(self) -> None:
        async with self._changing:
            self.is_lost = self._is_end_noted = False
            await super().start()
            # A broker leaves the in-sync sets that it may fall short of before it registers.
            self.is_suspect = False

    async def stop(self) -> None:
        """Stop the broker in order; SimulatedCrash when it died meanwhile."""
        async with self._changing:
            if self._broker is None or self.host.process is None:
                raise SimulatedCrash
            async with asyncio.timeout(_STOP_SECONDS):
                await super().stop()

    def crash(self) -> None:
        super().crash()
        self._on_death()

    def power_loss(self) -> None:
        """Switch off the machine with every broker on it."""
        for member in self.machine_members:
            member._lose_power()

    def _lose_power(self) -> None:
        if self._is_clean and not self.is_running:
            self.lose_power_while_stopped()
        else:
            super().power_loss()
            self._on_death()

    def empty_disk(self) -> None:
        """Replace the disk of a stopped broker by an empty one."""
        self.host.empty_disk()
        self.is_suspect = True

    def restore(self, copy: SimulatedDisk) -> None:
        """Replace the data directory of a stopped broker by a copy."""
        self.host.restore(copy)
        self.is_suspect = True

    def clone(self, copy: SimulatedDisk, machine: SimulatedMachine | None) -> ClusterMember:
        """Make another broker with the same node id on a copy of a data directory; it is not among the
        members of the stage.
        """
        self._clones += 1
        name = f"{self.host.name}-clone-{self._clones}"
        arguments = (self._world, self.node_id, self._raw_settings, self._ensemble, self._session_seconds)
        clone = ClusterMember(*arguments, machine, name)
        clone.host.restore(copy)
        return clone

    def note_end(self) -> None:
        """Note the end of a process that died within a disk operation."""
        if not self.is_running and not self._is_end_noted:
            self.crash()

    def _on_death(self) -> None:
        self.is_suspect, self.cache_lost = self.is_suspect or self.cache_lost, False
        self._is_end_noted = True
        self._disconnect_reasons.discard("paused")
        if self._store is not None:
            self._store.cut_off()

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
        if self._store is not None:
            self._store.cut_off()

    def reconnect_store(self, reason: str) -> None:
        self._disconnect_reasons.discard(reason)
        if self._store is not None and self.is_running and not self._disconnect_reasons:
            self._store.reconnect()

    def expire_session(self) -> None:
        if self._store is not None:
            self._store.expire()

    async def _end_session(self) -> None:
        """Leave the session open: the ensemble expires it after its timeout."""

    def _on_lost(self) -> None:
        self.is_lost = True
        # After a disk error a broker trusts none of its logs and leaves the in-sync sets that it shares.
        self.is_suspect = self.is_suspect or any(replica.log.failed for replica in self.replicas())
