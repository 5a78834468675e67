"""Topic and offset lookups of the driver. Each call is synchronous and opens its own connections, because lookups are
rare.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.records import RecordCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute
from penstock.pipeline.options import OptionError, SourceOptions, SubscriptionKind
from penstock.pipeline.read_settings import RETRY_SECONDS, ReadSettings, open_routes

T = TypeVar("T")

TopicPartition = tuple[str, int]
_NOT_FOUND = -1
_MAX_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class SourceTopic:
    name: str
    id: str
    partitions: tuple[int, ...]


class ClusterUnreachable(PenstockError):
    """No broker responds."""


class NoSuchTopic(OptionError):
    """A topic does not exist, or was deleted between two requests."""


def topics_of(options: SourceOptions, *, skips_missing: bool = False) -> dict[str, SourceTopic]:
    """Topics of the subscription, with the partitions to read.

    Raises NoSuchTopic if a topic does not exist; with `skips_missing` that topic is left out.
    """

    async def ask(routes: Routes) -> dict[str, SourceTopic]:
        if options.subscription is SubscriptionKind.PATTERN:
            pattern = re.compile(options.topics[0])
            found = {
                name: route
                for name, route in (await routes.topics()).items()
                if pattern.fullmatch(name) and not route.is_internal
            }
        else:
            found = await _routes_of(routes, options.topics, skips_missing)
        topics = {}
        for name, route in sorted(found.items()):
            numbers = options.assigned.get(name) or tuple(range(len(route.partitions)))
            missing = [number for number in numbers if not 0 <= number < len(route.partitions)]
            if missing:
                raise OptionError(f"assign: {name} has no partition {missing[0]}")
            topics[name] = SourceTopic(name, route.id.hex, numbers)
        return topics

    return run(options.bootstrap, ask)


async def _routes_of(routes: Routes, names: Iterable[str], skips_missing: bool) -> dict[str, TopicRoute]:
    found = {}
    for name in names:
        try:
            found[name] = await routes.topic(name)
        except BrokerError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            if not skips_missing:
                raise NoSuchTopic(str(error)) from error
    return found


def topic_names(bootstrap: str) -> list[str]:
    """Names of all topics except internal ones."""

    async def ask(routes: Routes) -> list[str]:
        return sorted(name for name, route in (await routes.topics()).items() if not route.is_internal)

    return run(bootstrap, ask)


def offsets_at(read_settings: ReadSettings, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """For each partition the first offset at or after its time, or an end of the log for the times LATEST and EARLIEST;
    -1 if all records are older.
    """

    async def ask(routes: Routes) -> dict[TopicPartition, int]:
        gate = asyncio.Semaphore(_MAX_AT_ONCE)

        async def find(partition: TopicPartition) -> int:
            async with gate:
                return await find_offset(routes, partition, times[partition], read_settings.read_committed)

        return dict(zip(times, await asyncio.gather(*map(find, times)), strict=True))

    return run(read_settings.bootstrap, ask)


def end_offsets_of(
    read_settings: ReadSettings, partitions: Iterable[TopicPartition], end: int
) -> dict[TopicPartition, int]:
    return offsets_at(read_settings, dict.fromkeys(partitions, end))


async def find_offset(routes: Routes, partition: TopicPartition, time_ms: int, read_committed: bool) -> int:
    """Offset of one partition, as in `offsets_at`. Raises NoSuchTopic if the topic does not exist.

    Retries while a new leader does not know its high watermark.
    """
    topic, index = partition
    try:
        return await RecordCalls(routes).offset(topic, index, time_ms, read_committed=read_committed)
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            raise NoSuchTopic(f"there is no topic {topic!r} with a partition {index}") from error
        raise


def run(bootstrap: str, ask: Callable[[Routes], Awaitable[T]], patience_seconds: float = RETRY_SECONDS) -> T:
    """Run requests to a cluster in a separate event loop. Each request is retried for `patience_seconds`."""

    async def body() -> T:
        routes = open_routes(bootstrap, patience_seconds)
        try:
            return await ask(routes)
        finally:
            routes.close()

    try:
        return asyncio.run(body())
    except OSError as error:
        raise ClusterUnreachable(str(error)) from error
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            raise NoSuchTopic(str(error)) from error
        raise
