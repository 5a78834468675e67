"""Removal of the oldest records of queues that are too long, as dead letters (`share.max.length.policy=dead-letter`).

Committed records become dead letters within some milliseconds after the queue has become too long: the oldest first,
from the longest share-partition. Records that consumers have acquired stay. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.errors import BrokerError, StorageError, WouldBlock
from penstock.observability.logs import Logger
from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import DeadReason, Reason
from penstock.queues.undelivered import give_up

OVERFLOW: Final = Reason(DeadReason.OVERFLOW)
_FIRST_SECONDS: Final = 0.01
_MAX_SECONDS: Final = 1.0
_MAX_RECORDS: Final = 2_000
"""Maximum number of records that become dead letters between two checks of the queue lengths."""
_MAX_READS: Final = 20

Excess = Callable[[str], list[tuple[int, list[ShareLeader]]]]
"""Function that returns, for each queue of a topic that is too long, the number of excess records, and its
share-partitions, longest first.
"""


class QueueOverflow:
    def __init__(self, excess: Excess, logger: Logger) -> None:
        self._excess = excess
        self._logger = logger
        self._topics: set[str] = set()
        """Topics whose queues may be too long."""
        self._task: asyncio.Task[None] | None = None

    def look(self, topic: str) -> None:
        """Check soon whether queues of a topic are too long."""
        self._topics.add(topic)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause_seconds = _FIRST_SECONDS
        try:
            while self._topics:
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _MAX_SECONDS)
                for topic in tuple(self._topics):
                    # Records sent from here on are handled in the next round.
                    self._topics.discard(topic)
                    given_up, is_over = await self._trim(topic)
                    if given_up:
                        pause_seconds = _FIRST_SECONDS
                    if is_over:
                        self._topics.add(topic)
        finally:
            self._task = None

    async def _trim(self, topic: str) -> tuple[int, bool]:
        """Make excess records dead letters. Returns their number, and whether queues are still too long."""
        total = 0
        for excess, leaders in self._excess(topic):
            for leader in leaders:
                try:
                    count = await give_up_oldest(leader, min(excess, _MAX_RECORDS))
                except (BrokerError, StorageError, OSError) as error:
                    self._logger.error_rarely(
                        "messages of a queue over share.max.length could not be removed",
                        error,
                        share_partition=leader.key.name,
                    )
                    continue
                total += count
                if count:
                    break  # another share-partition may be the longest now
        return total, bool(self._excess(topic))


async def give_up_oldest(leader: ShareLeader, count: int) -> int:
    """Make up to `count` records of a share-partition dead letters: the oldest that no consumer has acquired. Returns
    their number.
    """
    offset, total, reads = 0, 0, 0
    while total < count and leader.partition is not None:
        offset = max(offset, leader.partition.start_offset)
        try:
            found, behind = give_up(leader, offset, leader.read_limit - 1, count - total, OVERFLOW)
        except WouldBlock:
            reads += 1
            if reads > _MAX_READS:
                break  # memory is short; the next round tries again
            await leader.source.warm(offset, leader.read_limit)
            continue
        total += found
        if behind <= offset:
            break
        offset = behind
        await asyncio.sleep(0)
    return total
