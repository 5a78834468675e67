"""The open streams by topic: applies changes of a topic to its streams.

Topics are looked up every second. Streams of all partitions read added partitions from their start. If a topic
was deleted, or deleted and created again with the same name, its streams end with an error. Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.gateway.push.stream import PushStream
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import TopicCalls

LOOK_SECONDS = 1.0


class OpenStreams:
    def __init__(self, topics: TopicCalls) -> None:
        self._topics = topics
        self._streams: dict[str, set[PushStream]] = {}
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))

    def add(self, stream: PushStream) -> None:
        self._streams.setdefault(stream.topic.name, set()).add(stream)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def discard(self, stream: PushStream) -> None:
        streams = self._streams[stream.topic.name]
        streams.discard(stream)
        if not streams:
            del self._streams[stream.topic.name]

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        try:
            while self._streams:
                await asyncio.sleep(LOOK_SECONDS)
                for name in tuple(self._streams):
                    await self._look_at(name)
        finally:
            self._looking = None

    async def _look_at(self, name: str) -> None:
        try:
            found = await self._topics.get(name, fresh=True)
        except (PenstockError, OSError) as error:
            # Other errors are ignored here, because the reads of the streams report them.
            if isinstance(error, BrokerError) and error.code is ErrorCode.unknown_topic_or_partition:
                for stream in self._streams.get(name, ()):
                    stream.fail(error)
        else:
            for stream in self._streams.get(name, ()):
                _follow(stream, found)


def _follow(stream: PushStream, found: TopicRoute) -> None:
    if found.id != stream.topic.id:
        error = BrokerError(
            ErrorCode.unknown_topic_id,
            f"{found.name} was deleted, and another topic was created with its name",
        )
        stream.fail(error)
        return
    if stream.reads_all:
        known = len(stream.topic.partitions)
        stream.leave_out(range(len(found.partitions), known))  # partitions that were removed
        stream.read_from(dict.fromkeys(range(known, len(found.partitions)), 0))
    stream.topic = found
