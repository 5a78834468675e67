"""Server of an in-memory ensemble that applies commits with a lag, as a ZooKeeper follower does.

Reads of its client return a state that the ensemble once had. It may be outdated, but is never older than the
state of an earlier read. A write of the client, or a `sync`, brings the server up to date, as ZooKeeper
guarantees.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context

from penstock.cluster.tree import PreparedWrite, Tree


class LaggingServer:
    def __init__(self, newest: Tree, on_applied: Callable[[frozenset[str]], None]) -> None:
        """`on_applied` receives the paths whose watchers must be notified."""
        self.tree = newest.copy()
        self._on_applied = on_applied
        self._behind: deque[PreparedWrite] = deque()
        self._applied = 0
        """Number of transactions that this server has applied."""

    def commit(self, transaction: PreparedWrite, lag_s: float) -> None:
        """Apply a transaction of the ensemble after `lag_s` seconds, together with all earlier ones that are
        pending.
        """
        self._behind.append(transaction)
        loop = asyncio.get_running_loop()
        loop.call_later(lag_s, self._apply_to, self._applied + len(self._behind), context=Context())

    def catch_up(self) -> None:
        self._apply_to(self._applied + len(self._behind))

    def apply_next(self) -> None:
        """Apply the oldest pending transaction, if there is one."""
        self._apply_to(self._applied + min(1, len(self._behind)))

    def _apply_to(self, count: int) -> None:
        while self._applied < count:
            transaction = self._behind.popleft()
            self._applied += 1
            self.tree.apply(transaction)
            self._on_applied(transaction.touched)
