"""A stream that is a member of a consumer group: partitions are assigned, and the client acknowledges events.

An acknowledgement covers an event and all earlier events of its partition. Acknowledged offsets are committed,
at the latest when the partition is given up. Unacknowledged events are sent again by the next owner, so delivery
is at least once. Acknowledgements never move a committed offset back. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.errors import BrokerError
from penstock.gateway.push.feed import Feeds
from penstock.gateway.push.group_member import StreamMember
from penstock.gateway.push.position import Positions
from penstock.gateway.push.stream import PushStream
from penstock.internal_client.groups import GroupCalls
from penstock.internal_client.records import LATEST, RecordCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute

_RETRY_SECONDS = 1.0


class GroupStream:
    def __init__(
        self, feeds: Feeds, topic: TopicRoute, routes: Routes, group: str, member_id: str, start: int
    ) -> None:
        """Create a stream. Partitions without a committed offset are read from `start`, EARLIEST or LATEST."""
        self._id_positions: dict[int, int] = {}
        """Positions after events that were sent and not acknowledged. Event ids contain only these partitions."""
        self.stream = PushStream(feeds, topic, id_positions=self._id_positions)
        self.stream.committed = self._committed
        self.group = group
        self._records = feeds.records
        self._start = start
        self._calls = GroupCalls(routes, RecordCalls(routes))
        self._first_ends: dict[int, int] = {}
        """End offsets, if `start` is LATEST, of partitions of other members that had no committed offset at first."""
        self._member = StreamMember(routes, group, topic, member_id, self)
        self._acknowledged: dict[int, int] = {}
        """Acknowledged offset of each partition that is read. It begins with the offset from which the partition
        was assigned.
        """
        self._uncommitted: set[int] = set()
        self._membership: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None

    async def _committed(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Return the positions of the group in partitions that other members read."""
        found = await self._calls.committed(self.group, self.stream.topic.name, partitions)
        new = [each for each in partitions if each not in found and each not in self._first_ends]
        if new and self._start == LATEST:
            self._first_ends |= await self._records.offsets(self.stream.topic.name, new, LATEST)
        return {**self._first_ends, **found}

    async def join(self) -> None:
        """Join the group; raises BrokerError or OSError if that fails."""
        await self._member.join()
        self._membership = asyncio.get_running_loop().create_task(self._stay())

    def heartbeat_soon(self) -> None:
        """Send a heartbeat at once, because another stream has joined or left. The rebalance ends only after all
        members have sent heartbeats.
        """
        self._member.heartbeat_soon()

    async def close(self) -> None:
        """Commit acknowledged offsets, and leave the group."""
        for task in (self._membership, self._committing):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self._commit_finally(self._uncommitted)
        await self._member.leave()

    @property
    def unacknowledged(self) -> int:
        """Number of offsets that were sent and not acknowledged, in all partitions."""
        positions = self.stream.positions
        return sum(
            max(0, positions.get(partition, 0) - offset) for partition, offset in self._acknowledged.items()
        )

    def acknowledge(self, positions: Positions) -> list[int]:
        """Acknowledge all events below these positions. Returns those of the partitions that this stream reads."""
        mine = sorted(positions.keys() & self.stream.positions.keys())
        for partition in mine:
            # Limited to the sent events, because other events cannot have been processed.
            offset = min(positions[partition], self.stream.positions[partition])
            if offset >= self._id_positions.get(partition, offset):
                self._id_positions.pop(partition, None)
            if offset > self._acknowledged[partition]:
                self._acknowledged[partition] = offset
                self._uncommitted.add(partition)
        if self._uncommitted and self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit())
        return mine

    async def until_committed(self) -> None:
        """Wait until all acknowledged offsets are committed, or until the stream is closed."""
        if self._committing is not None:
            await asyncio.wait((self._committing,))

    # --- AssignmentListener

    async def start_offsets(self, partitions: frozenset[int]) -> Mapping[int, int]:
        return await self._records.offsets(self.stream.topic.name, sorted(partitions), self._start)

    def on_assigned(self, positions: Mapping[int, int]) -> None:
        self._acknowledged |= positions
        self.stream.read_from(positions)

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        self.stream.leave_out(partitions)
        await self._commit_finally(partitions & self._uncommitted)
        for partition in partitions:
            self._acknowledged.pop(partition, None)
        self._uncommitted -= partitions

    def on_lost(self) -> None:
        self.stream.leave_out(self.stream.positions)
        self._acknowledged.clear()
        self._uncommitted.clear()

    async def _stay(self) -> None:
        try:
            await self._member.run()
        except BrokerError as error:
            self.stream.fail(error)

    async def _commit(self) -> None:
        try:
            while self._uncommitted:
                try:
                    await self._commit_now(self._uncommitted)
                except (BrokerError, OSError):
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._committing = None

    async def _commit_finally(self, partitions: Iterable[int]) -> None:
        with suppress(BrokerError, OSError):
            await self._commit_now(partitions)

    async def _commit_now(self, partitions: Iterable[int]) -> None:
        offsets = {partition: self._acknowledged[partition] for partition in partitions}
        if offsets:
            await self._member.commit(offsets)
        self._uncommitted -= {
            partition for partition, offset in offsets.items() if self._acknowledged.get(partition) == offset
        }
