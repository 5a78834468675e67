"""Writes of share-partitions that were decided in one turn of the loop: made together in the next one, and appended
there, without a further turn. Loop thread only.
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
        """Call `write` in the next turn."""
        if not self._writes and not self._is_running:
            asyncio.get_running_loop().call_soon(self._run)
        self._writes.append(write)

    def note(self, append: Callable[[], None]) -> None:
        """Call `append` after the writes of this turn; without effect outside of a turn."""
        if self._is_running:
            self._appends[append] = None

    def _run(self) -> None:
        self._is_running = True
        try:
            for _ in range(len(self._writes)):
                self._writes.popleft()()
        finally:
            self._is_running = False
            if self._writes:  # added meanwhile, or left by a failure
                asyncio.get_running_loop().call_soon(self._run)
            appends, self._appends = self._appends, {}
            for append in appends:
                append()
