"""Small topics of JSON documents that are read as a whole; the last value of a key counts. The first write
creates the topic.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.clock import SystemClock
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.produce_loop import PartitionProducer
from penstock.internal_client.records import EARLIEST, LATEST, RecordCalls
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import NewTopic, TopicCalls
from penstock.net.acting import acting_for
from penstock.records.building import NewRecord
from penstock.records.iteration import Record, iterate, read_batches

_FETCH_BYTES = 1024 * 1024
_WRITE_SECONDS = 30.0
_COORDINATION_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class KeyedTopic:
    """Topic of documents that clients create and write. It has as many replicas as the offsets topic."""

    name: str
    partitions: int
    settings: Mapping[str, str]

    async def documents(self, routes: Routes) -> dict[str, Any]:
        """Last document of each key; empty if the topic does not exist."""
        found: dict[str, Any] = {}
        async for record in self.records(routes):
            key = (record.key or b"").decode(errors="replace")
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = json.loads(record.value)
        return found

    async def records(self, routes: Routes, last: int | None = None) -> AsyncIterator[Record]:
        """Yield the records of all partitions or, with `last`, of the last `last` offsets of each partition."""
        route = await self._find(routes)
        calls = RecordCalls(routes)
        for partition in range(len(route.partitions) if route else 0):
            offset = await calls.offset(self.name, partition, EARLIEST)
            end = await calls.offset(self.name, partition, LATEST)
            offset = offset if last is None else max(offset, end - last)
            while offset < end:
                fetched = await calls.fetch(self.name, partition, offset, _FETCH_BYTES)
                following = offset
                for header, batch in read_batches(memoryview(fetched.records)):  # type: ignore[arg-type]
                    following = header.next_offset
                    for record in iterate(batch, header):
                        if offset <= record.offset < end:
                            yield record
                if following == offset:
                    break
                offset = following

    async def put(self, routes: Routes, key: str, document: Mapping[str, Any] | None) -> None:
        """Store a document, or remove it if `document` is None. Raises OutcomeUnknown if it is not certain
        that the write was stored.
        """
        route = await self._ensure(routes)
        partition = partition_for(key.encode(), len(route.partitions))
        producer = PartitionProducer(routes, self.name, partition, actor=acting_for.get())
        value = None if document is None else json.dumps(document, ensure_ascii=False).encode()
        deadline = asyncio.get_running_loop().time() + _WRITE_SECONDS
        await producer.write([NewRecord(key.encode(), value, SystemClock().now_ms())], deadline)

    async def ensure(self, routes: Routes) -> int:
        """Create the topic if it does not exist. Returns its number of partitions."""
        return len((await self._ensure(routes)).partitions)

    async def _ensure(self, routes: Routes) -> TopicRoute:
        found = await self._find(routes)
        if found is not None:
            return found
        replicas = await _replicas(routes)
        try:
            await TopicCalls(routes).create(NewTopic(self.name, self.partitions, replicas, self.settings))
        except OutcomeUnknown:
            pass  # If the topic exists, it is found below.
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

        async def see() -> TopicRoute:
            routes.forget(self.name)
            route = await self._find(routes)
            if route is None or any(each.leader < 0 for each in route.partitions):
                raise BrokerError(ErrorCode.leader_not_available, f"{self.name} has no leader yet")
            return route

        return await retry(see, _WRITE_SECONDS)

    async def _find(self, routes: Routes) -> TopicRoute | None:
        try:
            return await routes.topic(self.name)
        except BrokerError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                routes.forget(self.name)
                return None
            raise


async def _replicas(routes: Routes) -> int:
    """Number of replicas of the offsets topic; -1, the broker's default, if that topic does not exist yet."""
    try:
        return len((await routes.topic(_COORDINATION_TOPIC)).partitions[0].replicas)
    except BrokerError:
        return -1
