"""Sweep of expired records that no consumer fetches: share-partitions on this broker archive them or make them dead
letters.

A round reads a limited number of log sections in a thread pool, so a long backlog takes several rounds. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.errors import BrokerError, StorageError, WouldBlock
from penstock.observability.logs import Logger
from penstock.queues.expiry_index import ExpiryIndex, SectionContent, read_section
from penstock.queues.live_records import EXPIRED
from penstock.queues.share_leader import ShareLeader
from penstock.queues.undelivered import give_up
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext

_SECTIONS_PER_ROUND: Final = 16
_MAX_READS: Final = 20
_HELD_MS: Final = 10_000
"""Time in milliseconds after which a section is checked again if consumers had acquired expired records of it."""


class ExpirySweep:
    def __init__(self, context: BrokerContext, logger: Logger) -> None:
        self._context = context
        self._logger = logger
        self._indexes: dict[tuple[Replica, int], ExpiryIndex] = {}
        """Index of the expiry times of each replica that this broker leads, by replica and leader epoch."""
        self.expired = 0
        """Number of expired records that the sweep has archived or made dead letters."""

    async def run(self) -> None:
        """Make one round over all share-partitions in memory."""
        read: dict[tuple[Replica, int], list[ShareLeader]] = {}
        for leader in self._context.share.partitions.all:
            if leader.partition is not None and leader.is_leading:
                read.setdefault((leader.replica, leader.leader_epoch), []).append(leader)
        self._indexes = {key: self._indexes[key] if key in self._indexes else ExpiryIndex() for key in read}
        left = _SECTIONS_PER_ROUND
        for key, leaders in read.items():
            try:
                left -= await self._sweep(self._indexes[key], leaders, max(1, left))
            except (BrokerError, StorageError, OSError) as error:
                self._logger.error_rarely("search for expired records failed", error, partition=key[0].name)

    async def _sweep(self, index: ExpiryIndex, leaders: Sequence[ShareLeader], budget: int) -> int:
        """Check the due sections of a partition, then sections that were not read before. Returns the number of checked
        sections.
        """
        log, count = leaders[0].replica.log, 0
        starts = [each.partition.start_offset for each in leaders if each.partition is not None]
        index.forget_below(max(log.log_start_offset, min(starts, default=0)))
        now_ms = self._context.clock.now_ms()
        for section in index.due(now_ms)[:budget]:
            reading = await self._read(leaders[0].replica, section.first, section.last + 1, now_ms)
            is_done = await self._give_up(leaders, reading)
            index.replace(section, reading.due_ms if is_done else now_ms + _HELD_MS)
            count += 1
        while count < budget and index.next_offset < (below := log.last_stable_offset):
            first = index.next_offset
            reading = await self._read(leaders[0].replica, first, below, now_ms)
            index.next_offset = max(first + 1, reading.next_offset)
            is_done = await self._give_up(leaders, reading)
            due_ms = reading.due_ms if is_done else now_ms + _HELD_MS
            if due_ms is not None:
                index.add(first, index.next_offset - 1, due_ms)
            count += 1
        return count

    async def _read(self, replica: Replica, first: int, below: int, now_ms: int) -> SectionContent:
        log = replica.log
        return await self._context.threads.run("read", lambda: read_section(log, first, below, now_ms))

    async def _give_up(self, leaders: Sequence[ShareLeader], reading: SectionContent) -> bool:
        """Archive the expired records of a section, or make them dead letters. Returns True if none of them is left."""
        is_done = True
        for leader in leaders:
            for first, last in reading.expired:
                is_done &= await self._give_up_range(leader, first, last)
        return is_done

    async def _give_up_range(self, leader: ShareLeader, first: int, last: int) -> bool:
        reads, start = 0, first
        while first <= last and leader.partition is not None:
            first = max(first, leader.partition.start_offset)
            try:
                count, behind = give_up(leader, first, last, last - first + 1, EXPIRED)
            except WouldBlock:
                reads += 1
                if reads > _MAX_READS:
                    return False
                await leader.source.warm(first, leader.read_limit)
                continue
            self.expired += count
            if behind <= first:
                return False
            first = behind
            await asyncio.sleep(0)
        return leader.partition is not None and not leader.partition.is_held_within(start, last)
