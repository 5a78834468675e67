"""Requests that wait for the end of the transaction before theirs: mostly it comes in a moment. Loop thread only."""

from __future__ import annotations

import asyncio


class Completions:
    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    async def wait(self, transactional_id: str, seconds: float) -> None:
        """Until the id is told of; TimeoutError after so long."""
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
