"""The in-memory twin of the coordination store, for tests and simulation: several clients on one shared tree.

A `MemoryEnsemble` is what all brokers of a simulated cluster agree on and survives their crashes; each
`MemoryStore` is one client with its own session. Faults come from a seed: a write may answer UnknownOutcome
with or without having happened, and any call may take its (virtual) time. No threads, no clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type; the numbers come from the caller

from penstock.cluster.coordination import (
    Delete,
    Node,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SingleWrites,
)
from penstock.cluster.tree import ROOT, Transaction, Tree
from penstock.cluster.watches import Watches
from penstock.errors import UnknownOutcome


@dataclass(slots=True)
class Faults:
    """What goes wrong, with which probability; may be changed at any time."""

    random: Random
    unknown_not_applied: float = 0.0
    unknown_applied: float = 0.0
    max_delay_s: float = 0.0


class MemoryEnsemble:
    """The shared tree and the sessions on it."""

    def __init__(self) -> None:
        self._tree = Tree()
        self._sessions: dict[int, MemoryStore] = {}
        self._next_session = 1

    @property
    def tree(self) -> Tree:
        return self._tree

    def client(self, faults: Faults | None = None) -> MemoryStore:
        return MemoryStore(self, faults)

    def open_session(self, store: MemoryStore) -> int:
        session = self._next_session
        self._next_session += 1
        self._sessions[session] = store
        return session

    def end_session(self, session: int) -> None:
        """Remove the session and its ephemeral nodes; its holder finds out at its next call."""
        if self._sessions.pop(session, None) is None:
            return  # it had ended before, or never began
        removals = [Delete(path) for path in self._tree.owned_by(session)]
        if removals:
            self.commit(self._tree.prepare(removals, session))

    def commit(self, transaction: Transaction) -> None:
        self._tree.apply(transaction)
        for store in self._sessions.values():
            store.watches.notify(transaction.touched)

    def is_alive(self, session: int) -> bool:
        return session in self._sessions


class MemoryStore(SingleWrites):
    """One client of the ensemble; after its session expired, `start` opens a new one."""

    def __init__(self, ensemble: MemoryEnsemble, faults: Faults | None = None) -> None:
        self.watches = Watches()
        self.faults = faults
        self._ensemble = ensemble
        self._session = 0
        self._session_callbacks: list[Callable[[SessionState], None]] = []

    async def start(self) -> None:
        self._session = self._ensemble.open_session(self)
        self._tell(SessionState.CONNECTED)

    async def close(self) -> None:
        self._ensemble.end_session(self._session)

    def expire(self) -> None:
        """What the ensemble does to a client it has not heard of for the session timeout."""
        self._ensemble.end_session(self._session)
        self._tell(SessionState.EXPIRED)

    async def get(self, path: str) -> Node:
        await self._reach()
        return self._ensemble.tree.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        await self._reach()
        return [self._get_or_none(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        await self._reach()
        return self._ensemble.tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        await self._reach()
        if self._happens("unknown_not_applied"):
            raise UnknownOutcome("the connection was lost before the answer")
        transaction = self._ensemble.tree.prepare(operations, self._session)
        self._ensemble.commit(transaction)
        if self._happens("unknown_applied"):
            raise UnknownOutcome("the connection was lost before the answer")
        return transaction.results

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self.watches.add(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._session_callbacks.append(callback)

    def _get_or_none(self, path: str) -> Node | None:
        try:
            return self._ensemble.tree.get(path)
        except NoNode:
            return None

    async def _reach(self) -> None:
        """The way to the ensemble: other tasks run meanwhile, and the session may end before we arrive."""
        delay_s = self.faults.random.uniform(0, self.faults.max_delay_s) if self.faults else 0
        await asyncio.sleep(delay_s)
        if not self._ensemble.is_alive(self._session):
            raise SessionExpired(ROOT)

    def _happens(self, fault: str) -> bool:
        return self.faults is not None and self.faults.random.random() < getattr(self.faults, fault)

    def _tell(self, state: SessionState) -> None:
        for callback in self._session_callbacks:
            callback(state)
