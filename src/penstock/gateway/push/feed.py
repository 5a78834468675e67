"""Reads of topics that many streams share: a page that one stream has read is cached for the others, and one
long poll serves all streams that wait for a partition.

A partition is read only when a stream asks for it, and watched by a long poll only while a stream waits. Nothing
is read ahead, so a slow stream does not use more and more memory. Pages are cached up to a total size, for
streams that reach the same offset later. Loop thread only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.errors import BrokerError, PenstockError
from penstock.gateway.push.turns import Turns
from penstock.gateway.records import GatewayRecords, Limits, RecordPage
from penstock.internal_client.retries import RETRIABLE
from penstock.internal_client.topic_routes import TopicRoute
from penstock.model import TopicId
from penstock.net.acting import own_context
from penstock.records.iteration import Record

PAGE_LIMITS = Limits(max_records=100, max_bytes=32 * 1024)
MAX_KEPT_BYTES = 32 * 1024 * 1024
WAIT_MS = 20_000
MAX_READS = 8
"""Maximum number of concurrent reads that do not wait for new records."""
RETRY_SECONDS = 0.5
WAKES_PER_TURN = 32
_MESSAGE_OVERHEAD_BYTES = 120

Wake = Callable[[], None]


class PushMessage(NamedTuple):
    offset: int
    body: bytes
    """JSON form of the message, the same for all streams."""


Render = Callable[[str, int, Record], bytes]
"""Function that renders the body of a message from its topic, partition and record."""


class SharedPage(NamedTuple):
    """Messages of a partition from the offset `start` up to `next_offset`, shared by all streams."""

    start: int
    next_offset: int
    messages: tuple[PushMessage, ...]
    size: int

    def from_offset(self, offset: int) -> tuple[PushMessage, ...]:
        if offset == self.start:
            return self.messages
        return self.messages[bisect_right(self.messages, offset - 1, key=lambda each: each.offset) :]


class Feeds:
    """All partitions that streams are reading, and the cache of their pages."""

    def __init__(self, records: GatewayRecords, render: Render) -> None:
        self.records = records
        self.render = render
        self.turns = Turns()
        self.events_taken = 0
        """Number of events that all streams have taken since the start."""
        self.reading = asyncio.Semaphore(MAX_READS)
        self._feeds: dict[tuple[TopicId, int], PartitionFeed] = {}
        self._kept: deque[tuple[PartitionFeed, SharedPage]] = deque()
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._feeds)

    def open(self, topic: TopicRoute, partition: int) -> PartitionFeed:
        """Return the feed of a partition for one more stream. The stream must close it at its end."""
        feed = self._feeds.get((topic.id, partition))
        if feed is None:
            feed = self._feeds[topic.id, partition] = PartitionFeed(self, topic, partition)
        feed.readers += 1
        return feed

    def known_ends(self, topic: TopicRoute, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end offsets of those partitions that are watched, because a stream waits at their end. A new
        stream need not look up these ends.
        """
        feeds = ((each, self._feeds.get((topic.id, each))) for each in partitions)
        return {each: feed.end for each, feed in feeds if feed is not None and feed.is_watched}

    def drop(self, feed: PartitionFeed) -> None:
        self._feeds.pop((feed.topic_id, feed.partition), None)

    def keep(self, feed: PartitionFeed, page: SharedPage) -> None:
        self._kept.append((feed, page))
        self._kept_bytes += page.size
        while self._kept_bytes > MAX_KEPT_BYTES:
            oldest_feed, oldest = self._kept.popleft()
            self._kept_bytes -= oldest.size
            oldest_feed.forget_page(oldest)

    def close(self) -> None:
        for feed in tuple(self._feeds.values()):
            feed.stop()


class PartitionFeed:
    def __init__(self, feeds: Feeds, topic: TopicRoute, partition: int) -> None:
        self.topic, self.topic_id = topic.name, topic.id
        self.partition = partition
        self.readers = 0
        self._feeds = feeds
        self.end = -1
        """Highest offset that a read has reached; -1 before the first read and after an error."""
        self._starts: list[int] = []
        self._pages: dict[int, SharedPage] = {}
        self._reads: dict[int, asyncio.Task[SharedPage]] = {}
        self._waiting: set[Wake] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_watched(self) -> bool:
        return self._watch is not None

    def close(self, wake: Wake) -> None:
        """Remove one stream from the readers of the partition, and its `wake` from the waiting ones."""
        self._waiting.discard(wake)
        self.readers -= 1
        self._end_if_unused()

    def stop(self) -> None:
        for task in (*self._reads.values(), *(() if self._watch is None else (self._watch,))):
            task.cancel()

    async def read(self, offset: int) -> SharedPage:
        """Return a page that contains `offset`, without waiting for new messages. Raises BrokerError or OSError if
        it cannot be read.
        """
        page = self._find(offset)
        if page is not None:
            return page
        reading = self._reads.get(offset)
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = loop.create_task(self._read_at_once(offset), context=own_context())
            self._reads[offset] = reading
            reading.add_done_callback(lambda done: self._on_read(offset, done))
        return await asyncio.shield(reading)

    def _on_read(self, offset: int, reading: asyncio.Task[SharedPage]) -> None:
        del self._reads[offset]
        if not reading.cancelled():
            reading.exception()  # mark as retrieved: all streams that asked for the page may have ended

    def may_have(self, offset: int) -> bool:
        """True if a read at this offset may find a message at once. False at the known end."""
        return offset != self.end

    def wait(self, offset: int, wake: Wake) -> bool:
        """Register `wake`, which is called when there may be a message at the offset. Returns False, without
        registering it, if there is one already.
        """
        if offset < self.end:
            return False
        self._waiting.add(wake)
        if self._watch is None:
            loop = asyncio.get_running_loop()
            self._watch = loop.create_task(self._run_watch(offset), context=own_context())
        return True

    def forget_page(self, page: SharedPage) -> None:
        if self._pages.get(page.start) is page:
            del self._pages[page.start]
            self._starts.remove(page.start)

    def _find(self, offset: int) -> SharedPage | None:
        place = bisect_right(self._starts, offset)
        if place == 0:
            return None
        page = self._pages[self._starts[place - 1]]
        return page if offset < page.next_offset else None

    async def _read_at_once(self, offset: int) -> SharedPage:
        async with self._feeds.reading:
            return await self._read(offset, 0)

    async def _read(self, offset: int, wait_ms: int) -> SharedPage:
        found = await self._feeds.records.read(self.topic, self.partition, offset, PAGE_LIMITS, wait_ms)
        if found.records:
            await self._feeds.turns.mine()
        page = self._shared(offset, found)
        self.end = max(self.end, page.next_offset)
        if page.next_offset > offset and offset not in self._pages:
            self._pages[offset] = page
            insort(self._starts, offset)
            self._feeds.keep(self, page)
        return page

    def _shared(self, offset: int, page: RecordPage) -> SharedPage:
        render = self._feeds.render
        messages = tuple(
            PushMessage(record.offset, render(self.topic, self.partition, record)) for record in page.records
        )
        size = sum(len(each.body) + _MESSAGE_OVERHEAD_BYTES for each in messages)
        return SharedPage(offset, page.next_offset, messages, size)

    async def _run_watch(self, offset: int) -> None:
        loop = asyncio.get_running_loop()
        # Read without waiting first: a long poll needs a connection of its own, and is not needed if messages
        # arrive continuously.
        wait_ms = 0
        try:
            while self._waiting:
                began = loop.time()
                try:
                    page = await self._read(offset, wait_ms)
                except (PenstockError, OSError) as error:
                    if not isinstance(error, BrokerError) or error.code in RETRIABLE:
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    # The streams will read, get the same error and report it.
                    self.end = -1
                    self._wake_all()
                    return
                if page.next_offset > offset:
                    self._wake_all()
                    return
                if wait_ms:
                    # `GatewayRecords.read` returns at once if there are too many long polls.
                    await asyncio.sleep(max(0.0, began + RETRY_SECONDS - loop.time()))
                wait_ms = WAIT_MS
        finally:
            self._watch = None
            self._end_if_unused()

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, set()
        self._wake_some(tuple(waiting), 0)

    def _wake_some(self, waiting: tuple[Wake, ...], first: int) -> None:
        # Thousands of streams may wake at once. They are woken in several loop turns, so that other work can run.
        following = first + WAKES_PER_TURN
        for wake in waiting[first:following]:
            wake()
        if following < len(waiting):
            asyncio.get_running_loop().call_soon(self._wake_some, waiting, following)

    def _end_if_unused(self) -> None:
        # A long poll in progress is kept, because it can serve the next stream.
        if self.readers == 0 and self._watch is None:
            self._feeds.drop(self)
