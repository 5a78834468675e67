"""Fetches that wait for records of a share-partition, served in the order of their arrival. Loop thread only."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from penstock.errors import BrokerError
from penstock.queues.leader_context import WaitingFetch
from penstock.replication.waiting import DataWaiters

_SERVED_PER_TURN = 32


class FetchOwner(Protocol):
    """The part of `ShareLeader` that waiting fetches use."""

    @property
    def error(self) -> BrokerError | None: ...

    def has_work(self) -> bool: ...


class WaitingFetches:
    def __init__(self, owner: FetchOwner, data_waiters: DataWaiters, on_data: Callable[[], None]) -> None:
        """`on_data` is called when the log of the partition has new records while fetches wait."""
        self._owner = owner
        self._data_waiters = data_waiters
        self._on_data = on_data
        self._waiting: OrderedDict[WaitingFetch, None] = OrderedDict()
        self._is_waking = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, fetch: WaitingFetch) -> None:
        """Serve a fetch when there are records, after earlier waiting fetches."""
        self._waiting[fetch] = None
        self._data_waiters.add(self._on_data)

    def discard(self, fetch: WaitingFetch) -> None:
        self._waiting.pop(fetch, None)
        if not self._waiting:
            self._data_waiters.discard(self._on_data)

    def wake(self) -> None:
        """Schedule waiting fetches to be served, as many as can find records."""
        if self._waiting and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_waking = False
        waiting, owner = len(self._waiting), self._owner
        for fetch in tuple(self._waiting) if owner.error else tuple(islice(self._waiting, _SERVED_PER_TURN)):
            if owner.error is not None:
                self._waiting.pop(fetch, None)
            elif not owner.has_work():
                break
            fetch.serve()
        if self._waiting and owner.error is None:
            self._data_waiters.add(self._on_data)
            if len(self._waiting) < waiting and owner.has_work():
                self.wake()
