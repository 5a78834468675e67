"""Carrying out intents: writes to another topic that a coordinator or a leader has stored before it sends them.

An intent has the producer id and the sequence of its batch. It is sent until it is written, by its next owner too, and
a partition recognises the repeated sequence, so its topic has the batch once. Loop thread only.
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
"""Errors of a partition that knows another history of the producer: it does not store the batch."""


async def carry_out(
    step: Callable[[], Awaitable[bool]], resolve: Callable[[Exception], Awaitable[bool]]
) -> None:
    """Make steps until one returns False.

    After an error, `resolve` tells whether the next step can be made at once; otherwise it is made after a pause.
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
