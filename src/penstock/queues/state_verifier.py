"""Checks if an administrator has reset the state of a share-partition since its leader has loaded it.

If so, the leader is closed, and the state is loaded again. Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.queues.state_client import RETRIABLE
from penstock.queues.state_writer import WriterOwner


class StateVerifier:
    def __init__(self, key: ShareKey, state_epoch: int, owner: WriterOwner) -> None:
        self._key = key
        self._state_epoch = state_epoch
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._looked_at = asyncio.get_running_loop().time()

    def look(self, pause_seconds: float = 0.0) -> None:
        """Start a check, unless one is running or was started less than `pause_seconds` ago."""
        now = asyncio.get_running_loop().time()
        if self._task is None and now - self._looked_at >= pause_seconds:
            self._looked_at = now
            self._task = asyncio.get_running_loop().create_task(self._look())

    def close(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _look(self) -> None:
        try:
            summary = await self._owner.states.summary(self._key)
            if summary.state_epoch != self._state_epoch:
                self._owner.close(
                    BrokerError(ErrorCode.fenced_state_epoch, "the offsets of the group were reset")
                )
        except BrokerError as error:
            if error.code not in RETRIABLE:
                self._owner.close(error)
        finally:
            self._task = None
