"""Producer ids, unique for the life of the cluster, from blocks that the coordination store hands out only once.

A block (`Administration.allocate_producer_ids`) is allocated before its first id is used, so a crash skips ids and
never repeats one. While no block can be allocated, producers get an error that clients of any version retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.model import ProducerId


class ProducerIds:
    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next(self) -> ProducerId:
        async with self._allocating:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._next_block())
                producer_id = next(self._block)
            return ProducerId(producer_id)

    async def _next_block(self) -> range:
        try:
            return await self._allocate_block()
        except PenstockError as error:
            # A timeout or a storage error would be fatal to a producer.
            raise BrokerError(
                ErrorCode.coordinator_load_in_progress, f"no producer ids could be allocated: {error}"
            ) from error
