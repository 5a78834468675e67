"""Fair sharing of the event loop: if thousands of streams are ready at once, other work runs between them.

The work of one turn should take less than a millisecond. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque

PER_TURN = 2
"""Number of streams that run in one turn of the event loop."""


class Turns:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def mine(self) -> None:
        """Wait until the caller may run in a turn of the event loop."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        given = 0
        while self._waiting and given < PER_TURN:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)
