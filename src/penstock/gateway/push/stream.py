"""One stream of the messages of a topic, sent as fast as its client reads.

A stream holds offsets and no messages: it reads through the feeds when `take` is called. If it belongs to a group,
the group assigns and revokes its partitions. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.push.feed import Feeds, PartitionFeed, SharedPage
from penstock.gateway.push.position import encode_positions
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.internal_client.retries import RETRIABLE
from penstock.internal_client.topic_routes import TopicRoute

_RETRY_SECONDS = 0.5
_TURN_SECONDS = 0.05
"""Time in seconds after which a stream checks again whether partitions that are being removed are read."""


class Event(NamedTuple):
    id: str
    """Position after the event, as in `encode_positions`."""
    body: bytes


class PushStream:
    def __init__(
        self,
        feeds: Feeds,
        topic: TopicRoute,
        *,
        reads_all: bool = False,
        id_positions: dict[int, int] | None = None,
    ) -> None:
        """Create a stream. With `reads_all` it also reads partitions that are added later.

        Event ids contain the positions in `id_positions`; if it is None, all positions of the stream. The stream
        adds a position for each sent event, and the owner of the stream may remove positions.
        """
        self.topic = topic
        self.reads_all = reads_all
        self.positions: dict[int, int] = {}
        self._id_positions = self.positions if id_positions is None else id_positions
        self.committed: Callable[[Sequence[int]], Awaitable[Mapping[int, int]]] | None = None
        """Looks up the positions of partitions that other members of the group read; None without a group."""
        self._feeds = feeds
        self._open: dict[int, PartitionFeed] = {}
        self._is_due = asyncio.Event()
        self._failure: BrokerError | None = None

    # --- partitions

    def read_from(self, positions: Mapping[int, int]) -> None:
        """Begin to read these partitions, each from its offset on."""
        for partition, offset in positions.items():
            if partition not in self._open:
                self._open[partition] = self._feeds.open(self.topic, partition)
            self.positions[partition] = offset
        self.wake()

    def leave_out(self, partitions: Iterable[int]) -> None:
        for partition in tuple(partitions):
            if partition in self._open:
                self._open.pop(partition).close(self.wake)
                self.positions.pop(partition)
                self._id_positions.pop(partition, None)

    def close(self) -> None:
        self.leave_out(self._open)

    def fail(self, failure: BrokerError) -> None:
        """End the stream: the next call of `take` raises this error."""
        self._failure = failure
        self.wake()

    def wake(self) -> None:
        self._is_due.set()

    # --- events

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> list[Event]:
        """Return some events. If there are none, wait up to `patience_seconds`, then return an empty list.

        Raises BrokerError if the stream cannot continue. May be cancelled; then the position does not change.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_seconds
        while True:
            await self._feeds.turns.mine()
            self._is_due.clear()
            if self._failure is not None:
                raise self._failure
            events = await self._take_some(max_events, max_bytes)
            if events:
                return events
            if not self._must_wait():
                continue
            if loop.time() >= deadline:
                return []
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._is_due.wait()

    async def _take_some(self, max_events: int, max_bytes: int) -> list[Event]:
        going = [each for each, route in enumerate(self.topic.partitions) if route.is_going]
        for partition in sorted(self.positions, key=lambda each: each not in going):
            page = await self._read(partition)
            if page is None:
                continue
            if going and partition not in going and await self._is_late(going):
                await asyncio.sleep(_TURN_SECONDS)
                return []
            # Move the partition to the end, so that the next call begins with another one.
            self.positions[partition] = self.positions.pop(partition)
            events = self._events_of(partition, page, max_events, max_bytes)
            if events:
                return events
        return []

    async def _is_late(self, going: Sequence[int]) -> bool:
        """True if partitions in `going`, which are being removed, have messages that were not sent yet. Messages of
        other partitions have to wait for them, so that the messages of a key keep their order.

        Called after a page of another partition was read, so the ends include all earlier messages of its keys.
        """
        if not (self.reads_all or self.committed):
            return False
        ends = await self._feeds.records.offsets(self.topic.name, going, LATEST)
        starts = await self._feeds.records.offsets(self.topic.name, going, EARLIEST)
        others = [each for each in going if each not in self.positions and ends[each] > starts[each]]
        positions = dict(self.positions)
        if others and self.committed is not None:
            positions |= await self.committed(others)
        return any(ends[each] > max(starts[each], positions.get(each, -1)) for each in going)

    async def _read(self, partition: int) -> SharedPage | None:
        """Return the next page of a partition; None if there are no messages, or the partition is no longer read."""
        offset = self.positions.get(partition)
        if offset is None or not self._open[partition].may_have(offset):
            return None
        try:
            page = await self._open[partition].read(offset)
        except OSError:
            await asyncio.sleep(_RETRY_SECONDS)
            return None
        except BrokerError as error:
            if error.code is ErrorCode.offset_out_of_range:
                await self._go_where_there_is_something(partition, offset)
            elif error.code in RETRIABLE:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                raise
            return None
        # During the read the partition may have been revoked, and even assigned again with another offset.
        return page if self.positions.get(partition) == offset and page.next_offset > offset else None

    async def _go_where_there_is_something(self, partition: int, offset: int) -> None:
        """Move the position to the log start offset if retention has deleted the next records, else to the end."""
        records, name = self._feeds.records, self.topic.name
        earliest = (await records.offsets(name, [partition], EARLIEST))[partition]
        latest = (await records.offsets(name, [partition], LATEST))[partition]
        if self.positions.get(partition) == offset:
            self.positions[partition] = earliest if offset < earliest else latest

    def _events_of(self, partition: int, page: SharedPage, max_events: int, max_bytes: int) -> list[Event]:
        events: list[Event] = []
        messages = page.from_offset(self.positions[partition])
        left_bytes = max_bytes
        for message in messages[:max_events]:
            if events and len(message.body) > left_bytes:
                break
            left_bytes -= len(message.body)
            self.positions[partition] = self._id_positions[partition] = message.offset + 1
            events.append(Event(encode_positions(self.topic.id, self._id_positions), message.body))
        self._feeds.events_taken += len(events)
        if len(events) == len(messages):
            self.positions[partition] = page.next_offset
        return events

    def _must_wait(self) -> bool:
        """True if no partition has a message, so that the stream has to wait. All partitions will wake it then."""
        waits = [feed.wait(self.positions[partition], self.wake) for partition, feed in self._open.items()]
        return all(waits)
