"""The way of one broker to the coordination store: a client of the shared ensemble, or a socket to the server of
its machine.
"""

from __future__ import annotations

from typing import Protocol

from penstock.cluster.coordination import CoordinationStore
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.cluster.socket_store import SocketStore
from simulation.machine.host import SimulatedWorld
from simulation.scenarios.store_host import STORE_HOST


class StoreAccess(Protocol):
    def open(self) -> CoordinationStore:
        """Return the store of a new process."""
        ...

    async def close(self) -> None:
        """End the session, as an embedded store does with its process."""
        ...

    def cut_off(self) -> None: ...

    def reconnect(self) -> None: ...

    def expire(self) -> None: ...

    def has_requests_in_flight(self) -> bool:
        """Whether a request that the process sent may be applied after the end of the process."""
        ...


class EnsembleAccess:
    def __init__(self, ensemble: MemoryEnsemble, faults: Faults, session_seconds: float) -> None:
        self._ensemble = ensemble
        self._faults = faults
        self._session_seconds = session_seconds
        self._store: MemoryStore | None = None

    def open(self) -> CoordinationStore:
        self._store = self._ensemble.client(self._faults, self._session_seconds)
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def cut_off(self) -> None:
        if self._store is not None:
            self._store.cut_off()

    def reconnect(self) -> None:
        if self._store is not None:
            self._store.reconnect()

    def expire(self) -> None:
        if self._store is not None:
            self._store.expire()

    def has_requests_in_flight(self) -> bool:
        return False


class SocketAccess:
    """A socket within a machine loses no bytes, so a broker is not cut off while both processes run."""

    def __init__(self, world: SimulatedWorld, host: str, session_seconds: float) -> None:
        self._network = world.network
        self._host = host
        self._session_seconds = session_seconds
        self._store: SocketStore | None = None

    def open(self) -> CoordinationStore:
        self._store = SocketStore(self._network.host(self._host), STORE_HOST, self._session_seconds)
        return self._store

    async def close(self) -> None:
        self.expire()

    def cut_off(self) -> None:
        pass

    def reconnect(self) -> None:
        pass

    def expire(self) -> None:
        for stream in self._network.streams(self._host):
            if STORE_HOST in stream.hosts:
                stream.reset()

    def has_requests_in_flight(self) -> bool:
        return self._store is not None and self._store.requests_in_flight > 0
