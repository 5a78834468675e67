"""Writes of share-partitions that were requested in one turn of the event loop. They are made together in the next turn
and appended at its end, without a further turn. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class WriteTurn:
    def __init__(self) -> None:
        self._writes: deque[Callable[[], None]] = deque()
        self._appends: dict[Callable[[], None], None] = {}
        self._is_running = False

    def add(self, write: Callable[[], None]) -> None:
        """Call `write` in the next turn of the event loop."""
        if not self._writes and not self._is_running:
            asyncio.get_running_loop().call_soon(self._run)
        self._writes.append(write)

    def note(self, append: Callable[[], None]) -> None:
        """Call `append` once after the writes of this turn. Does nothing outside of `_run`."""
        if self._is_running:
            self._appends[append] = None

    def _run(self) -> None:
        self._is_running = True
        try:
            for _ in range(len(self._writes)):
                self._writes.popleft()()
        finally:
            self._is_running = False
            if self._writes:  # added during the turn, or remaining after an exception
                asyncio.get_running_loop().call_soon(self._run)
            appends, self._appends = self._appends, {}
            for append in appends:
                append()
