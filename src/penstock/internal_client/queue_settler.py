"""Settlements of one queue. Settlements of one turn of the loop share a request. Loop thread only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.errors import BrokerError, PenstockError
from penstock.internal_client.queue_messages import Settlement

SettleAll = Callable[[Sequence[Settlement]], Awaitable[Sequence[BrokerError | None]]]


class QueueSettler:
    def __init__(self, settle_all: SettleAll) -> None:
        self._settle_all = settle_all
        self._unsent: list[tuple[Settlement, asyncio.Future[None]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def settle(self, settlement: Settlement) -> None:
        """Settle a message. Raises BrokerError if the settlement is refused, OSError if no broker responds."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append((settlement, done))
        await done

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        task = asyncio.get_running_loop().create_task(self._send(unsent))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, unsent: Sequence[tuple[Settlement, asyncio.Future[None]]]) -> None:
        try:
            results = await self._settle_all([settlement for settlement, _ in unsent])
        except (PenstockError, OSError) as error:
            for _, done in unsent:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), refusal in zip(unsent, results, strict=True):
            if done.done():
                continue
            if refusal is None:
                done.set_result(None)
            else:
                done.set_exception(refusal)
