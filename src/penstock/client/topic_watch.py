"""Partitions of topics as the internal client sees them, including draining partitions and the number of active ones.

librdkafka does not accept a smaller number of partitions while it runs. Producers and ordered consumers therefore ask
brokers over a separate connection, in an event loop in a thread that starts with the first request. Methods may be
called from any thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING

from penstock.client.errors import InvalidSetting
from penstock.client.internal_connection import InternalConnection

if TYPE_CHECKING:
    from penstock.internal_client.client import InternalClient
    from penstock.internal_client.topic_routes import TopicRoute

LOOK_S = 1.0
"""Interval at which the partitions of a producer's topics are looked up, in seconds."""
QUIET_START_S = 1.0
"""Time after its start in which a producer looks up nothing, because librdkafka's metadata is still new, in seconds."""
FORGET_S = 60.0
"""Time since the last message to a topic after which a producer stops looking up its partitions, in seconds."""
REQUEST_S = 5.0


class TopicWatch:
    def __init__(self, connection: InternalConnection) -> None:
        self._connection = connection
        self._started_at = time.monotonic()
        self._used_at: dict[str, float] = {}
        self._active: dict[str, int] = {}
        """Number of active partitions, for topics that have draining partitions."""
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: InternalClient | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_usable = True

    def partition_for(self, topic: str, key: bytes | None) -> int | None:
        """Return the partition for a message; None (librdkafka chooses) if no draining partition is known."""
        now = time.monotonic()
        if now - self._started_at < QUIET_START_S:
            return None
        self._used_at[topic] = now
        if self._loop is None and self._is_usable:
            self._start(looks=True)
        active = self._active.get(topic)
        if active is None:
            return None
        if key is None:
            return random.randrange(active)  # noqa: S311
        from penstock.internal_client.partitioner import partition_for

        return partition_for(key, active)

    def look(self, topic: str) -> TopicRoute | None:
        """Look up the partitions of a topic now; None if no broker responds in time."""
        if self._loop is None and self._is_usable:
            self._start(looks=False)
        if self._loop is None or self._client is None:
            return None
        asked = asyncio.run_coroutine_threadsafe(self._client.topics.get(topic, fresh=True), self._loop)
        try:
            return asked.result(REQUEST_S)
        except Exception:  # noqa: BLE001 - the caller works without the answer
            asked.cancel()
            return None

    def close(self) -> None:
        loop, self._loop, self._is_usable = self._loop, None, False
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(loop), loop)

    def _start(self, *, looks: bool) -> None:
        with self._starting:
            if self._loop is not None or not self._is_usable:
                return
            try:
                client = self._connection.open("penstock-watch", REQUEST_S)
            except InvalidSetting:
                self._is_usable = False
                return
            loop = asyncio.new_event_loop()
            self._client, self._loop = client, loop
            threading.Thread(target=_run, args=[loop], name="penstock-watch", daemon=True).start()
            if looks:
                loop.call_soon_threadsafe(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = loop.create_task(self._look_always())

    async def _look_always(self) -> None:
        while True:
            for topic in list(self._used_at):
                if time.monotonic() - self._used_at[topic] > FORGET_S:
                    del self._used_at[topic]
                    self._active.pop(topic, None)
                else:
                    await self._look_at(topic)
            await asyncio.sleep(LOOK_S)

    async def _look_at(self, topic: str) -> None:
        from penstock.errors import PenstockError

        assert self._client is not None
        try:
            async with asyncio.timeout(REQUEST_S):
                route = await self._client.topics.get(topic, fresh=True)
        except (PenstockError, OSError, TimeoutError):
            return  # librdkafka reports the failure
        if route.active_count < len(route.partitions):
            self._active[topic] = route.active_count
        else:
            self._active.pop(topic, None)

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._client is not None:
            await self._client.__aexit__()
        # A connection in the process of being opened is a separate task, which has to be cancelled too.
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        loop.stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
