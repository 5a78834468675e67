"""Reading of records of share-partitions that are not in memory when a fetch needs them: in a thread pool, for a
limited time.

The source of a view may have a long stretch of log without a match: each read settles a part of it, and the next fetch
continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.queues.share_leader import ShareLeader

_MIN_SECONDS: Final = 0.5
"""Minimum time in seconds in which a fetch may begin reads, for a fetch with a shorter wait or none."""


class ReadingTime:
    """Time limit within which a fetch may begin to read records; it starts with the first read."""

    __slots__ = ("_deadline", "_seconds")

    def __init__(self, wait_ms: int) -> None:
        self._seconds = max(wait_ms / 1000, _MIN_SECONDS)
        self._deadline: float | None = None

    def is_left(self) -> bool:
        """True if another read may begin; the first read always may."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        return now < self._deadline


async def warm(cold: Iterable[ShareLeader]) -> None:
    """Read the next records of share-partitions into memory."""
    leaders = tuple(cold)
    await asyncio.gather(*(leader.warm() for leader in leaders), *(leader.live.warm() for leader in leaders))


def warm_for_others(cold: Iterable[ShareLeader]) -> None:
    """Read the next records in the background. The current fetch responds with records of other partitions, and the
    next fetch finds these in memory.
    """
    asyncio.ensure_future(warm(cold)).add_done_callback(_ignore)


def _ignore(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
