"""One broker of a simulated cluster, with a session in the store that all share.

Several brokers may be on one machine: a power loss takes all of them (`housemates`).

It may be paused, and be kept from the store; a session whose holder is out of reach ends after its time. How it ended
decides what it may be asked for, until it is back: `is_suspect` says that its disk may lack what it had acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from penstock.cluster.memory import MemoryEnsemble
from penstock.replication.replica import Replica
from penstock.simulation.broker_host import BrokerHost
from penstock.simulation.disk import SimulatedDisk
from penstock.simulation.host import SimulatedWorld
from penstock.simulation.machine import SimulatedMachine
from penstock.simulation.process import SimulatedCrash

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
        """`machine` is None for a broker that has one of its own."""
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
        self.housemates: tuple[ClusterMember, ...] = (self,)
        """The brokers on this machine, this one too."""
        self.is_lost = False
        """It has said that it is in the cluster no more, and has to be started again."""
        self.is_suspect = False
        self.down_until = 0.0
        """Nobody starts it before."""
        self._is_buried = True
        """Whether the machine has noticed the end of its last process."""
        self._changing = asyncio.Lock()
        self._kept_away: set[str] = set()

    @property
    def is_serving(self) -> bool:
        return self._is_serving and self.is_running and not self.is_lost

    @property
    def is_paused(self) -> bool:
        return self.host.process is not None and self.host.process.is_paused

    def replicas(self) -> Iterator[Replica]:
        """Of a broker that serves."""
        assert self._broker is not None
        return iter(self._broker._replicas)

    async def start(self) -> None:
        async with self._changing:
            self.is_lost = self._is_buried = False
            await super().start()
            # Before it was seen again, it had left what it could not answer for.
            self.is_suspect = False

    async def stop(self) -> None:
        """SimulatedCrash when it died before it had stopped."""
        async with self._changing:
            if self._broker is None or self.host.process is None:
                raise SimulatedCrash
            async with asyncio.timeout(_STOP_SECONDS):
                await super().stop()

    def crash(self) -> None:
        super().crash()
        self._on_death()

    def power_loss(self) -> None:
        """The machine goes off, with every broker on it."""
        for member in self.housemates:
            member._lose_power()

    def _lose_power(self) -> None:
        if self._is_clean and not self.is_running:
            self.lose_power_while_stopped()
        else:
            super().power_loss()
            self._on_death()

    def empty_disk(self) -> None:
        """Put an empty disk in place of the one of a broker that is down."""
        self.host.empty_disk()
        self.is_suspect = True

    def restore(self, copy: SimulatedDisk) -> None:
        """Put a copy of a data directory in place of the one of a broker that is down."""
        self.host.restore(copy)
        self.is_suspect = True

    def clone(self, copy: SimulatedDisk, machine: SimulatedMachine | None) -> ClusterMember:
        """Another process with the same node id on a copy of a data directory; it is no member of the stage."""
        self._clones += 1
        name = f"{self.host.name}-clone-{self._clones}"
        arguments = (self._world, self.node_id, self._raw_settings, self._ensemble, self._session_seconds)
        clone = ClusterMember(*arguments, machine, name)
        clone.host.restore(copy)
        return clone

    def mourn(self) -> None:
        """It may have died in the middle of an operation on its disk: let the machine notice."""
        if not self.is_running and not self._is_buried:
            self.crash()

    def _on_death(self) -> None:
        self.is_suspect, self.cache_lost = self.is_suspect or self.cache_lost, False
        self._is_buried = True
        self._kept_away.discard("paused")
        if self._store is not None:
            self._store.cut_off()

    # --- out of reach

    def pause(self) -> None:
        self.host.pause()
        self.keep_away("paused")

    def resume(self) -> None:
        """It goes on at once; of the store it hears later."""
        self.host.resume()
        self._world.network.later(lambda: self.let_near("paused"))

    def keep_away(self, reason: str) -> None:
        """Let it not reach the store."""
        self._kept_away.add(reason)
        if self._store is not None:
            self._store.cut_off()

    def let_near(self, reason: str) -> None:
        self._kept_away.discard(reason)
        if self._store is not None and self.is_running and not self._kept_away:
            self._store.reconnect()

    def expire_session(self) -> None:
        if self._store is not None:
            self._store.expire()

    async def _end_session(self) -> None:
        """The ensemble does, when it has not heard of it for long enough."""

    def _on_lost(self) -> None:
        self.is_lost = True
        # After an error of its disk a broker trusts nothing that it has, and leaves what it shares.
        self.is_suspect = self.is_suspect or any(replica.log.failed for replica in self.replicas())
