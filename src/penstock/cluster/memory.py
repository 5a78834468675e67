"""Coordination store in memory, for tests and simulation: several clients on one shared tree.

A `MemoryEnsemble` is the shared state of all brokers of a simulated cluster and survives their crashes. Each
`MemoryStore` is one client with its own session. Faults come from a seed: a write may raise UnknownOutcome
with or without having happened, and any call may take (virtual) time. While a client is disconnected, its
calls wait, responses to it are lost, and it misses watch events. After the session timeout its session
expires, and the client learns of that when it reconnects. Its server may lag (`LaggingServer`). After a
reconnect, which may lead to another server, reads follow a `sync`, as in the ZooKeeper store. No threads; the
only clock is the loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type; the numbers come from the caller
from typing import TypeVar

from penstock.cluster.coordination import (
    Delete,
    Node,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SingleWrites,
    StoreUnreachable,
)
from penstock.cluster.memory_server import LaggingServer
from penstock.cluster.tree import ROOT, PreparedWrite, Tree
from penstock.cluster.watches import Watches
from penstock.errors import UnknownOutcome

LOST = "the connection was lost before the response"

T = TypeVar("T")


@dataclass(slots=True)
class Faults:
    """Probabilities and bounds of faults. May be changed at any time."""

    random: Random
    unknown_not_applied: float = 0.0
    unknown_applied: float = 0.0
    max_delay_s: float = 0.0
    max_lag_s: float = 0.0
    """Maximum lag of a client's server in seconds: for this time after a commit, a client that has not
    written since may read the state before the commit.
    """


class MemoryEnsemble:
    """Shared tree and its sessions."""

    def __init__(self) -> None:
        self._tree = Tree()
        self._sessions: dict[int, MemoryStore] = {}
        self._next_session = 1

    @property
    def tree(self) -> Tree:
        return self._tree

    def client(self, faults: Faults | None = None, session_timeout_s: float = 6.0) -> MemoryStore:
        return MemoryStore(self, faults, session_timeout_s)

    def open_session(self, store: MemoryStore) -> int:
        session = self._next_session
        self._next_session += 1
        self._sessions[session] = store
        return session

    def end_session(self, session: int) -> None:
        """Remove the session and its ephemeral nodes. The owner of the session learns of it at its next call."""
        if self._sessions.pop(session, None) is None:
            return  # The session has ended before, or never began.
        removals = [Delete(path) for path in self._tree.owned_by(session)]
        if removals:
            self.commit(self._tree.prepare(removals, session))

    def commit(self, transaction: PreparedWrite) -> None:
        self._tree.apply(transaction)
        for store in self._sessions.values():
            store.on_commit(transaction)

    def is_alive(self, session: int) -> bool:
        return session in self._sessions


class MemoryStore(SingleWrites):
    """One client of the ensemble. After its session has expired, `start` opens a new one."""

    def __init__(
        self, ensemble: MemoryEnsemble, faults: Faults | None = None, session_timeout_s: float = 6.0
    ) -> None:
        self.faults = faults
        self._ensemble = ensemble
        self._session_timeout_s = session_timeout_s
        self._watches = Watches()
        self._session = 0
        self._session_callbacks: list[Callable[[SessionState], None]] = []
        self._context = Context()
        """Context in which callbacks of this client run, instead of the context of the client that made a change."""
        self._connected = asyncio.Event()
        self._connected.set()
        self._connection = 0
        """Number of the current connection, which a disconnection increases. Responses to earlier connections
        are lost.
        """
        self._missed: set[str] = set()
        self._is_over = False
        self._server: LaggingServer | None = None
        self._must_sync = False
        self._expiry: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._context = copy_context()
        await self._until_connected()
        self._session = self._ensemble.open_session(self)
        self._is_over = False
        if self.faults is not None and self.faults.max_lag_s:
            # Opening a session is a write, so the server has applied everything before it.
            self._server = LaggingServer(self._ensemble.tree, self.on_change)
        self._tell(SessionState.CONNECTED)

    async def close(self) -> None:
        if self._connected.is_set():
            self._ensemble.end_session(self._session)

    def expire(self) -> None:
        """Expire the session, as the ensemble does when a client was silent for the session timeout."""
        self._ensemble.end_session(self._session)
        if not self._connected.is_set():
            return
        if self._lags:
            loop = asyncio.get_running_loop()
            loop.call_later(self._lag_s(), self._tell, SessionState.EXPIRED, context=self._context)
        else:
            self._context.copy().run(self._tell, SessionState.EXPIRED)

    # --- connection to the ensemble

    def cut_off(self) -> None:
        """Disconnect the client, as if the ensemble were unreachable or the client's process suspended."""
        if not self._connected.is_set():
            return
        self._connected.clear()
        self._connection += 1
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(
            self._session_timeout_s, self._ensemble.end_session, self._session, context=Context()
        )
        loop.call_soon(self._tell, SessionState.SUSPENDED, context=self._context)

    def reconnect(self) -> None:
        if self._connected.is_set():
            return
        self._connected.set()
        self._must_sync = True
        if self._expiry is not None:
            self._expiry.cancel()
        missed, self._missed = self._missed, set()
        is_over = self._session != 0 and not self._ensemble.is_alive(self._session)
        state = SessionState.EXPIRED if is_over else SessionState.CONNECTED
        asyncio.get_running_loop().call_soon(self._tell, state, context=self._context)
        if not is_over:
            self.on_change(missed)

    def on_commit(self, transaction: PreparedWrite) -> None:
        """Deliver a commit of the ensemble to this client's server."""
        if self._server is None:
            self.on_change(transaction.touched)
        else:
            self._server.commit(transaction, self._lag_s())

    def on_change(self, paths: Iterable[str]) -> None:
        """Notify watchers of changed, created or removed nodes."""
        if not self._connected.is_set():
            self._missed.update(paths)
        elif self.faults is None or not self.faults.max_delay_s:
            self._context.copy().run(self._watches.notify, paths)
        else:
            asyncio.get_running_loop().call_later(
                self._delay_s(), self._watches.notify, paths, context=self._context
            )

    async def _until_connected(self) -> None:
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(self._session_timeout_s):
                    await self._connected.wait()
            except TimeoutError:
                raise StoreUnreachable("memory") from None

    async def _reach(self, *, may_be_stale: bool = False) -> int:
        """Wait for the request's delay and for a connection. Other tasks run meanwhile, and the session may
        expire. Returns the number of the connection.

        With `may_be_stale`, a read is served even if the session has expired, as by a lagging server that
        does not know of the expiry yet.
        """
        await asyncio.sleep(self._delay_s())
        await self._until_connected()
        is_stale = may_be_stale and self._lags and not self._is_over
        if not self._ensemble.is_alive(self._session) and not is_stale:
            raise SessionExpired(ROOT)
        return self._connection

    @property
    def _lags(self) -> bool:
        return self._server is not None and self.faults is not None and self.faults.max_lag_s > 0

    def _lag_s(self) -> float:
        return self.faults.random.uniform(0, self.faults.max_lag_s) if self.faults else 0.0

    def _view(self) -> Tree:
        """Tree as the server of this client knows it."""
        if self._server is None:
            return self._ensemble.tree
        if self._must_sync or not self._lags:
            self._must_sync = False
            self._server.catch_up()
        return self._server.tree

    def _delay_s(self) -> float:
        return self.faults.random.uniform(0, self.faults.max_delay_s) if self.faults else 0.0

    # --- calls

    async def get(self, path: str) -> Node:
        return await self._read(lambda: self._view().get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._read(lambda: [self._get_pipelined(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        return await self._read(lambda: self._view().children(path))

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        connection = await self._reach()
        if self._happens("unknown_not_applied"):
            raise UnknownOutcome(LOST)
        try:
            transaction = self._ensemble.tree.prepare(operations, self._session)
            self._ensemble.commit(transaction)
        finally:
            self._must_sync = True  # A response to a write, even a refusal, follows all earlier commits.
        if self._happens("unknown_applied"):
            raise UnknownOutcome(LOST)
        await self._return()
        if connection != self._connection:
            raise UnknownOutcome(LOST)
        return transaction.results

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._session_callbacks.append(callback)

    async def _read(self, look: Callable[[], T]) -> T:
        """Read, and retry if the connection was lost."""
        while True:
            connection = await self._reach(may_be_stale=True)
            answer = look()
            await self._return()
            if connection == self._connection:
                return answer

    async def _return(self) -> None:
        """Wait for the delay of the response, if `max_delay_s` is set."""
        if self.faults is not None and self.faults.max_delay_s:
            await asyncio.sleep(self._delay_s())

    def _get_pipelined(self, path: str) -> Node | None:
        """Result of one of several pipelined reads; None if the node does not exist. The server may apply
        commits between two of these reads.
        """
        if self._server is not None and self._lags and self._happens_by_chance():
            self._server.apply_next()
        try:
            return self._view().get(path)
        except NoNode:
            return None

    def _happens_by_chance(self) -> bool:
        return self.faults is not None and self.faults.random.random() < 0.1

    def _happens(self, fault: str) -> bool:
        return self.faults is not None and self.faults.random.random() < getattr(self.faults, fault)

    def _tell(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            if self._is_over:
                return
            self._is_over = True
        for callback in self._session_callbacks:
            callback(state)
