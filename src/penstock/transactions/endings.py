"""The end of a transaction: the markers that its partitions still need, and requests that wait until all are
written.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from penstock.model import TopicPartition
from penstock.records.control import Marker

RETRY_SECONDS: Final = 0.1
MAX_RETRY_SECONDS: Final = 2.0


class Ending:
    """A transaction whose outcome is decided and whose markers are being written."""

    __slots__ = ("_done", "_left", "_pause_seconds", "is_abandoned", "is_done", "marker", "version")

    def __init__(
        self,
        marker: Marker,
        version: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[], None],
    ) -> None:
        self.marker = marker
        self.version = version
        self.is_done = False
        self.is_abandoned = False
        """True if another coordinator completes the transaction."""
        self._left = set(partitions)
        self._done = done
        self._pause_seconds = RETRY_SECONDS

    @property
    def left(self) -> frozenset[TopicPartition]:
        """Partitions whose marker is not written yet."""
        return frozenset(self._left)

    def next_pause_seconds(self) -> float:
        """Return the seconds to wait before the next attempt, and double the pause up to a limit. A written
        marker resets it.
        """
        pause_seconds = self._pause_seconds
        self._pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)
        return pause_seconds

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        self._left.difference_update(partitions)
        if partitions:
            self._pause_seconds = RETRY_SECONDS
        if not self._left and not self.is_abandoned and not self.is_done:
            self.is_done = True
            self._done()


class Completions:
    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    async def wait(self, transactional_id: str, seconds: float) -> None:
        """Wait until the id's transaction has ended. Raises TimeoutError after this many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, {})
        waiting[future] = None
        try:
            async with asyncio.timeout(seconds):
                await future
        finally:
            waiting.pop(future, None)
            if not waiting and self._waiting.get(transactional_id) is waiting:
                del self._waiting[transactional_id]

    def tell(self, transactional_id: str) -> None:
        for future in self._waiting.pop(transactional_id, ()):
            if not future.done():
                future.set_result(None)

    def tell_all(self) -> None:
        for transactional_id in tuple(self._waiting):
            self.tell(transactional_id)
