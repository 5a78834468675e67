"""Feed of a queue: receives messages for all streams of the queue at this gateway, by one receive at a time.

Streams with room for messages wait in a line. A receive asks for as many messages as the streams in the line have room
for. Each message goes to the first stream of the line, which then moves to the end of the line. So all streams get the
same number of messages, independent of their credit. Messages that no stream has room for any more return to the queue
at once. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol

from penstock.errors import BrokerError, PenstockError
from penstock.internal_client.queue_messages import QueueMessages, ReceivedMessage, Settlement
from penstock.internal_client.queues import QueueCalls
from penstock.internal_client.receipts import parse_receipt
from penstock.internal_client.retries import RETRIABLE
from penstock.net.acting import own_context
from penstock.wire.queue_settle import RETURN

MAX_TAKEN: Final = 500
"""Maximum number of messages of one receive."""
WAIT_MS: Final = 5_000
"""Duration of one long poll in milliseconds. Then the queue is looked up again, because it may have been deleted."""
_PAUSE_SECONDS: Final = 0.5
_RELEASE: Final = 2


class Taker(Protocol):
    """A stream that takes messages."""

    @property
    def room(self) -> int:
        """Number of messages that the stream can take now."""
        ...

    def give(self, message: ReceivedMessage) -> None: ...

    def fail(self, error: Exception) -> None:
        """End the stream with an error, because the queue cannot be read."""
        ...


Line = OrderedDict[Taker, None]
"""Streams that wait for messages. The first one gets the next message."""


class QueueFeed:
    def __init__(self, queues: QueueCalls, messages: QueueMessages, queue: str, lock_ms: int) -> None:
        self._queues = queues
        self._messages = messages
        self._queue = queue
        self._lock_ms = lock_ms
        self._line: Line = OrderedDict()
        self._reading: asyncio.Task[None] | None = None
        self.given = 0
        """Number of messages that were given to streams."""

    def wait(self, taker: Taker) -> None:
        """Add a stream with room at the end of the line, unless it is in the line already."""
        if taker in self._line:
            return
        self._line[taker] = None
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.create_task(self._read(), context=own_context())

    def leave(self, taker: Taker) -> None:
        """Remove a stream that ends. When the line becomes empty, the receive in progress is cancelled."""
        self._line.pop(taker, None)
        if not self._line and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def release(self, receipts: Sequence[str]) -> None:
        """Release the messages that an ended stream held, so that the queue delivers them again at once."""
        await self._settle(receipts, _RELEASE)

    async def _settle(self, receipts: Sequence[str], action: int) -> None:
        if not receipts:
            return
        settlements = [Settlement(parse_receipt(receipt), action, 0) for receipt in receipts]
        topic = (await self._queues.get_known(self._queue)).topic
        await self._messages.settle(self._queue, topic, settlements)

    async def _read(self) -> None:
        try:
            while self._line:
                await self._read_once()
        except (PenstockError, OSError) as error:
            failed, self._line = self._line, OrderedDict()
            for taker in failed:
                taker.fail(error)
        finally:
            if self._reading is asyncio.current_task():
                self._reading = None

    async def _read_once(self) -> None:
        try:
            topic = (await self._queues.get_known(self._queue)).topic
            wanted = self._wanted()
            if wanted == 0:
                return
            found = await self._messages.receive(self._queue, topic, wanted, WAIT_MS, self._lock_ms)
        except (BrokerError, OSError) as error:
            if isinstance(error, BrokerError) and error.code not in RETRIABLE:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        left = hand_out(found, self._line)
        self.given += len(found) - len(left)
        # RETURN counts no delivery attempt, because no client has seen these messages.
        await self._settle([each.receipt for each in left], RETURN)

    def _wanted(self) -> int:
        for taker in [each for each in islice(self._line, MAX_TAKEN) if each.room == 0]:
            del self._line[taker]
        return min(MAX_TAKEN, sum(each.room for each in islice(self._line, MAX_TAKEN)))


def hand_out(found: Sequence[ReceivedMessage], line: Line) -> Sequence[ReceivedMessage]:
    """Give messages to the streams of a line in turn, and return the messages that no stream has room for.

    Streams without room are removed from the line.
    """
    for place, message in enumerate(found):
        taker = None
        while line and (taker is None or taker.room == 0):
            taker, _ = line.popitem(last=False)
        if taker is None or taker.room == 0:
            return found[place:]
        taker.give(message)
        if taker.room > 0:
            line[taker] = None
    return ()


class QueueFeeds:
    """All queue feeds of a gateway: one for each combination of queue and lock time that a stream uses."""

    def __init__(self, queues: QueueCalls, messages: QueueMessages) -> None:
        self._queues = queues
        self._messages = messages
        self._feeds: dict[tuple[str, int], tuple[QueueFeed, set[object]]] = {}
        self._given = 0

    @property
    def given(self) -> int:
        return self._given + sum(feed.given for feed, _ in self._feeds.values())

    def open(self, queue: str, lock_ms: int, stream: object) -> QueueFeed:
        key = queue, lock_ms
        if key not in self._feeds:
            self._feeds[key] = QueueFeed(self._queues, self._messages, queue, lock_ms), set()
        feed, streams = self._feeds[key]
        streams.add(stream)
        return feed

    def close(self, queue: str, lock_ms: int, stream: object) -> None:
        feed, streams = self._feeds[queue, lock_ms]
        streams.discard(stream)
        if not streams:
            self._given += feed.given
            del self._feeds[queue, lock_ms]
