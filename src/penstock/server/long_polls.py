"""Spreading of the ends of long polls over time, so that thousands of waiting consumers are not served at one moment.

Long polls that end together, through an append or a timeout, are served a few in each turn of the event loop, so that
other requests are served in between. A wait ends up to a quarter early, at random, so that consumers that began
together do not return together. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

_PER_TURN = 32
_SPREAD = 0.25


class LongPolls:
    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._due: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self.parked: set[Callable[[], None]] = set()
        """Callbacks of the requests that wait for records; calling one makes its request check again."""

    def look_again(self) -> None:
        """Make all waiting requests check again after rights have changed: a request whose right was revoked is refused
        at once.
        """
        for look in tuple(self.parked):
            look()

    def wait_seconds(self, max_wait_ms: int) -> float:
        """Time in seconds that a long poll waits if the client allows `max_wait_ms`."""
        return max_wait_ms / 1000 * (1 - _SPREAD * self._random())

    def serve(self, work: Callable[[], None]) -> None:
        """Call `work` soon, after the work that became due before."""
        self._due.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve_some)

    def _serve_some(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(len(self._due), _PER_TURN)):
                self._due.popleft()()
        finally:
            self._schedule()  # also after an error, so that the remaining work is done
