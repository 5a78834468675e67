"""Records of share-partitions that are not in memory when a fetch wants them: read in a pool, for a limited time.

A view without a match may have a long log to scan: each read settles a part of it, and the next fetch continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.queues.share_leader import ShareLeader

_MIN_SECONDS: Final = 0.5
"""Time in seconds for reads of a fetch that does not wait for records."""


class ReadingTime:
    """The time in which a fetch may begin to read."""

    __slots__ = ("_deadline", "_seconds")

    def __init__(self, wait_ms: int) -> None:
        self._seconds = max(wait_ms / 1000, _MIN_SECONDS)
        self._deadline: float | None = None

    def is_left(self) -> bool:
        """Whether another read may begin; the first one always may."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        return now < self._deadline


async def warm(cold: Iterable[ShareLeader]) -> None:
    """Read the next records of share-partitions into memory."""
    leaders = tuple(cold)
    await asyncio.gather(*(leader.warm() for leader in leaders), *(leader.live.warm() for leader in leaders))


def warm_for_others(cold: Iterable[ShareLeader]) -> None:
    """Read the next records while the fetch is answered with those of other partitions: its next one finds them."""
    asyncio.ensure_future(warm(cold)).add_done_callback(_ignore)


def _ignore(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
