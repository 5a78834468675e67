"""Execution of intents. An intent is a write to another topic that a coordinator or a leader stores before it sends it.

An intent contains the producer id and the sequence number of its batch. It is sent until it is written, after a
failover by the next owner. The partition recognises a repeated sequence number, so that the batch is stored once. Loop
thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.errors import ErrorCode, PenstockError

MIN_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0

OTHER_HISTORY: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
    }
)
"""Errors of a partition whose producer state does not fit the sequence or epoch of the batch: it was not stored."""


async def carry_out(
    step: Callable[[], Awaitable[bool]], resolve: Callable[[Exception], Awaitable[bool]]
) -> None:
    """Call `step` until it returns False.

    After an error `resolve` is called: if it returns True, the next step follows at once, else after a pause.
    """
    pause = MIN_PAUSE_SECONDS
    while True:
        try:
            if not await step():
                return
            pause = MIN_PAUSE_SECONDS
        except (PenstockError, OSError, TimeoutError) as error:
            if await resolve(error):
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
