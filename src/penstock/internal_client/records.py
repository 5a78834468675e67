"""Record batches and offsets of partitions: Fetch, ListOffsets and DeleteRecords at their leaders.

The functions send one request on a given connection; `RecordCalls` finds the leader and retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.errors import BrokerError
from penstock.internal_client.api import RESPONSE_SECONDS, ClientApi, check_error
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId, TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request

EARLIEST, LATEST = -2, -1
"""Kafka's special timestamps for the log start and the log end of a partition."""
NOT_FOUND = -1
"""Offset in the response for a timestamp that is later than all records."""
_FETCH_VERSION = 16
_LIST_OFFSETS = ClientApi(2, 7)
_DELETE_RECORDS = ClientApi(21, 2)
_DELETE_TIMEOUT_MS = 15_000


async def fetch(
    connection: BrokerConnection,
    topic: TopicId,
    offsets: Mapping[int, int],
    max_bytes: int,
    wait_ms: int = 0,
    *,
    read_committed: bool = True,
) -> Sequence[FetchResult]:
    """Fetch partitions of one topic, each from its offset on. The broker waits up to `wait_ms` for the first
    record.
    """
    partitions = [FetchPartition(partition, offset, max_bytes) for partition, offset in offsets.items()]
    request = FetchRequest(
        wait_ms,
        1,
        [FetchTopic(None, topic, partitions)],
        [],
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        uses_topic_ids=True,
    )
    correlation_id = connection.next_correlation_id()
    frame = encode_fetch_request(correlation_id, _FETCH_VERSION, connection.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS + wait_ms / 1000):
        received = await connection.exchange(correlation_id, frame)
    response = decode_fetch_response(received, _FETCH_VERSION)
    check_error(response.error_code)
    return response.topics[0].partitions


async def list_offsets(
    connection: BrokerConnection,
    topic: str,
    partitions: Sequence[int],
    time_ms: int,
    *,
    read_committed: bool = True,
) -> Sequence[Any]:
    """Look up the first offset at or after a time, or at EARLIEST or LATEST. The results contain the errors."""
    wanted = [
        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": time_ms}
        for partition in partitions
    ]
    topics = [{"name": topic, "partitions": wanted}]
    fields = {"replica_id": -1, "isolation_level": int(read_committed), "topics": topics}
    response = await _LIST_OFFSETS.call(connection, fields)
    found: Sequence[Any] = response.topics[0].partitions
    return found


class Truncated(NamedTuple):
    """A partition whose oldest records were deleted."""

    log_start_offset: int
    removed_pending: int
    """Number of delayed messages that were deleted before they were delivered."""


class RecordCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        wait_ms: int = 0,
        *,
        read_committed: bool = True,
    ) -> FetchResult:
        """Fetch one partition from an offset on at its leader, with retries."""

        async def request(connection: BrokerConnection) -> FetchResult:
            topic_id = (await self._routes.topic(topic)).id
            [result] = await fetch(
                connection, topic_id, {partition: offset}, max_bytes, wait_ms, read_committed=read_committed
            )
            check_error(result.error_code)
            return result

        return await self._routes.at_leader(topic, partition, request)

    async def offset(self, topic: str, partition: int, time_ms: int, *, read_committed: bool = True) -> int:
        """Return the first offset at or after a time, or at EARLIEST or LATEST; NOT_FOUND if all records are older."""

        async def request(connection: BrokerConnection) -> int:
            [result] = await list_offsets(
                connection, topic, [partition], time_ms, read_committed=read_committed
            )
            check_error(result.error_code)
            return int(result.offset)

        return await self._routes.at_leader(topic, partition, request)

    async def offsets(
        self, topic: str, partitions: Sequence[int], time_ms: int, *, read_committed: bool = True
    ) -> Mapping[int, int]:
        """Return the offset of each partition at a time; the log end if all records are older.

        Each leader gets one request. Partitions without a result in its response are looked up one by one.
        """
        route = await self._routes.topic(topic)
        by_leader: dict[BrokerId, list[int]] = {}
        for partition in partitions:
            if 0 <= partition < len(route.partitions):
                by_leader.setdefault(route.partitions[partition].leader, []).append(partition)
        found: dict[int, int] = {}
        lookups = (
            self._offsets_at(leader, topic, led, time_ms, read_committed) for leader, led in by_leader.items()
        )
        for some in await asyncio.gather(*lookups):
            found |= some
        for partition in partitions:
            if partition not in found:
                found[partition] = await self._offset_or_end(topic, partition, time_ms, read_committed)
        return found

    async def _offsets_at(
        self, leader: BrokerId, topic: str, partitions: Sequence[int], time_ms: int, read_committed: bool
    ) -> Mapping[int, int]:
        try:
            results = await self._routes.at_broker(
                leader,
                lambda connection: list_offsets(
                    connection, topic, partitions, time_ms, read_committed=read_committed
                ),
            )
        except (BrokerError, OSError):
            return {}
        return {
            each.partition_index: each.offset
            for each in results
            if each.error_code == 0 and each.offset != NOT_FOUND
        }

    async def _offset_or_end(self, topic: str, partition: int, time_ms: int, read_committed: bool) -> int:
        offset = await self.offset(topic, partition, time_ms, read_committed=read_committed)
        if offset == NOT_FOUND:
            return await self.offset(topic, partition, LATEST, read_committed=read_committed)
        return offset

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> Mapping[int, Truncated]:
        """Delete the records before these offsets (-1 is the high watermark). Returns the result by
        partition.

        Partitions are truncated one after the other, until one fails.
        """
        return {
            partition: await self._delete_before(topic, partition, offset)
            for partition, offset in offsets.items()
        }

    async def _delete_before(self, topic: str, partition: int, offset: int) -> Truncated:
        wanted = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
        fields = {"topics": [wanted], "timeout": _DELETE_TIMEOUT_MS}

        async def request(connection: BrokerConnection) -> Truncated:
            response = await _DELETE_RECORDS.call(connection, fields)
            [result] = response.topics[0].partitions
            check_error(result.error_code)
            return Truncated(int(result.low_watermark), int(result.removed_pending))

        # A repeated request deletes nothing more.
        return await self._routes.at_leader(topic, partition, request)
