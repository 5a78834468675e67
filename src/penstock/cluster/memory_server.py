"""The server of an in-memory ensemble that one client is connected to: it applies what is committed some time later.

What its client reads is a state that the ensemble had, never an older one than before, and may not be the newest: a
ZooKeeper follower that lags. A write of the client, or a `sync`, brings it up to date, as ZooKeeper promises.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context

from penstock.cluster.tree import PreparedWrite, Tree


class LaggingServer:
    def __init__(self, newest: Tree, on_applied: Callable[[frozenset[str]], None]) -> None:
        """`on_applied` takes the paths whose watchers must hear of a transaction."""
        self.tree = newest.copy()
        self._on_applied = on_applied
        self._behind: deque[PreparedWrite] = deque()
        self._applied = 0
        """How many transactions this server has applied."""

    def commit(self, transaction: PreparedWrite, lag_s: float) -> None:
        """Apply a transaction of the ensemble after this time, and all before it no later."""
        self._behind.append(transaction)
        loop = asyncio.get_running_loop()
        loop.call_later(lag_s, self._apply_to, self._applied + len(self._behind), context=Context())

    def catch_up(self) -> None:
        self._apply_to(self._applied + len(self._behind))

    def apply_next(self) -> None:
        """Apply one transaction, if there is one: another read may be answered after it."""
        self._apply_to(self._applied + min(1, len(self._behind)))

    def _apply_to(self, count: int) -> None:
        while self._applied < count:
            transaction = self._behind.popleft()
            self._applied += 1
            self.tree.apply(transaction)
            self._on_applied(transaction.touched)
