"""Requests that wait for a partition: producers for an offset to be committed, consumers for new records.

Loop thread only. A waiter is called at most once and then forgotten.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.errors import BrokerError
from penstock.model import Offset

CommitCallback = Callable[[BrokerError | None], None]


def settled_by() -> tuple[asyncio.Future[None], CommitCallback]:
    """Make a future, and a callback that sets its result or error."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: BrokerError | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    return done, settle


class CommitWaiters:
    """Appends that wait for the high watermark, in offset order."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[tuple[Offset, CommitCallback]] = deque()

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, offset: Offset, callback: CommitCallback) -> None:
        """Call back once all records below `offset` are committed.

        A retried batch waits for the offset of the stored batch, which may be below the offsets of earlier waiters. Its
        callback is then called together with the last of them: a little late, but never early.
        """
        if self.waiting and offset < self.waiting[-1][0]:
            offset = self.waiting[-1][0]
        self.waiting.append((offset, callback))

    def committed(self, high_watermark: Offset, error: BrokerError | None = None) -> None:
        """Call back the waiters for offsets up to the high watermark, with `error` if it is given."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](error)

    def truncate(self, end: Offset) -> None:
        """Lower all offsets above `end`, the log end after a truncation, because their records were removed."""
        self.waiting = deque((min(offset, end), callback) for offset, callback in self.waiting)

    def fail(self, error: BrokerError) -> None:
        """Fail all waiters, because their records cannot be committed."""
        waiting, self.waiting = self.waiting, deque()
        for _, callback in waiting:
            callback(error)


class DataWaiters:
    """Long polls that wait for new records."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[Callable[[], None], None] = {}

    def add(self, callback: Callable[[], None]) -> None:
        self.waiting[callback] = None

    def discard(self, callback: Callable[[], None]) -> None:
        self.waiting.pop(callback, None)

    def wake(self) -> None:
        if self.waiting:
            waiting, self.waiting = self.waiting, {}
            for callback in waiting:
                callback()
