"""`Records` of a cluster: writing each record once, reading by offset, by time and by key.

Writes and reads go over connections of their own, so that a lookup is not answered behind an fsync; a read that waits
opens one for itself. Taking batches apart is left to a pool where that may take long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.errors import BrokerError, ErrorCode, InvalidBatch
from penstock.gateway.backend import EARLIEST, LATEST, KeyPage, Limits, Page
from penstock.gateway.fetched_records import take_records
from penstock.model import BrokerId, TopicPartition
from penstock.net.client import Client
from penstock.net.keyed_reads import KeyedRead, KeyedReads
from penstock.net.routes import Routes, check
from penstock.net.sender import OF_THE_CONTENT, Sender
from penstock.observability.alarms import AlarmKind, Alarms
from penstock.records.building import NewRecord
from penstock.records.iteration import Record
from penstock.threads import Threads
from penstock.wire.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
MAX_WAITING = 500
"""Reads that wait, each on a connection that a Kafka client might want; others are answered with what is there."""
BUSY_WAIT_MS = 200
"""A wait for any of several partitions ends after this long where it cannot wait at the leader."""
_FETCH_VERSION = 16
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 7
_READ_COMMITTED = 1
_POOL_FROM_BYTES = 64 * 1024
_NONE = -1


class ClusterRecords:
    def __init__(
        self,
        routes: Routes,
        sender: Sender,
        keyed_reads: KeyedReads,
        threads: Threads,
        alarms: Alarms,
    ) -> None:
        self._routes = routes
        self._sender = sender
        self._keyed_reads = keyed_reads
        self._threads = threads
        self._alarms = alarms
        self._waiting = 0
        self._corrupt: dict[TopicPartition, int] = {}
        """Offsets at which a batch with a wrong CRC was fetched last."""

    async def produce(self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False) -> int:
        return await self._sender.send(topic, partition, record, is_alone=is_alone)

    async def produce_many(
        self, topic: str, records: Sequence[tuple[int, NewRecord]]
    ) -> Sequence[int | Exception]:
        places: dict[int, list[int]] = {}
        for place, (partition, _) in enumerate(records):
            places.setdefault(partition, []).append(place)
        sent = [
            stretch
            for partition, of_partition in places.items()
            for stretch in self._sender.send_many(
                topic, partition, [records[each][1] for each in of_partition]
            )
        ]
        outcomes: dict[int, int | Exception] = {}
        order = iter([place for of_partition in places.values() for place in of_partition])
        for (_, count), outcome in zip(sent, await self._wait([each for each, _ in sent]), strict=True):
            for nth in range(count):
                outcomes[next(order)] = outcome + nth if isinstance(outcome, int) else outcome
        # What was refused together is tried one by one.
        refused = [place for place, outcome in sorted(outcomes.items()) if _is_of_the_content(outcome)]
        if len(records) > 1 and refused:
            again = [self._sender.send(topic, *records[place]) for place in refused]
            outcomes |= zip(refused, await self._wait(again), strict=True)
        return [outcome for _, outcome in sorted(outcomes.items())]

    async def _wait(self, sent: Sequence[asyncio.Future[int]]) -> list[int | Exception]:
        await asyncio.wait(sent)
        return [_outcome(future) for future in sent]

    async def read(self, topic: str, partition: int, offset: int, limits: Limits, wait_ms: int = 0) -> Page:
        try:
            result = await self._fetch(topic, partition, offset, limits.max_bytes, wait_ms)
        except BrokerError as error:
            if error.code is ErrorCode.corrupt_message:
                raise _damaged(topic, partition, offset, "the broker cannot read them") from None
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            raise await self._out_of_range(topic, partition, offset) from None
        records = memoryview(result.records)  # type: ignore[arg-type]
        taken, next_offset = await self._take(
            topic, partition, offset, records, result.aborted_transactions, limits
        )
        return Page(taken, next_offset, result.high_watermark, result.log_start_offset)

    async def wait_for_any(self, topic: str, offsets: Mapping[int, int], wait_ms: int) -> None:
        """One Fetch waits at each leader, on a connection of its own."""
        route = await self._routes.topic(topic)
        by_leader: dict[int, dict[int, int]] = {}
        for partition, offset in offsets.items():
            if partition < len(route.partitions):
                by_leader.setdefault(route.partitions[partition].leader, {})[partition] = offset
        waits = [
            asyncio.ensure_future(self._wait_at_leader(topic, of_leader, wait_ms))
            for of_leader in by_leader.values()
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _wait_at_leader(self, topic: str, offsets: Mapping[int, int], wait_ms: int) -> None:
        """Errors are left to the read that follows."""
        if self._waiting >= MAX_WAITING:
            await asyncio.sleep(min(wait_ms, BUSY_WAIT_MS) / 1000)
            return
        self._waiting += 1
        client: Client | None = None
        try:
            client = await self._routes.open_to_leader(topic, next(iter(offsets)))
            await self._ask_fetch(client, topic, offsets, 1, wait_ms)
        except (BrokerError, OSError):
            self._routes.forget(topic)
            await asyncio.sleep(min(wait_ms, BUSY_WAIT_MS) / 1000)
        finally:
            self._waiting -= 1
            if client is not None:
                client.close()

    async def read_key(
        self, topic: str, partition: int, key: bytes, from_offset: int, limits: Limits, wait_ms: int = 0
    ) -> KeyPage:
        wanted = KeyedRead(topic, partition, key, from_offset, limits.max_records, limits.max_bytes, wait_ms)
        found = await self._keyed_reads.read(wanted, PATIENCE_SECONDS + wait_ms / 1000)
        records = memoryview(found.records)
        taken, _ = await self._take(topic, partition, from_offset, records, None, limits)
        return KeyPage(taken, found.next_offset, found.is_complete)

    async def _take(
        self,
        topic: str,
        partition: int,
        offset: int,
        records: memoryview,
        aborted: Sequence[AbortedTransaction] | None,
        limits: Limits,
    ) -> tuple[tuple[Record, ...], int]:
        """As `take_records`; damage is an error that names its place, and an alarm until the place can be read."""
        name = TopicPartition(topic, partition)
        try:
            taken = await self._work(
                len(records), lambda: take_records(records, aborted, offset, limits.max_records)
            )
        except InvalidBatch as error:
            if error.code is not ErrorCode.corrupt_message:
                raise
            damaged = _damaged(topic, partition, offset, str(error))
            self._corrupt[name] = offset
            self._alarms.set(AlarmKind.CORRUPT_FETCH, name, str(damaged))
            raise damaged from error
        if self._corrupt and taken[1] > self._corrupt.get(name, taken[1]) >= offset:
            del self._corrupt[name]
            self._alarms.clear(AlarmKind.CORRUPT_FETCH, name)
        return taken

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """By one question to each leader; those that are not answered so are asked for one by one."""
        route = await self._routes.topic(topic)
        by_leader: dict[int, list[int]] = {}
        for partition in partitions:
            if 0 <= partition < len(route.partitions):
                by_leader.setdefault(route.partitions[partition].leader, []).append(partition)
        found: dict[int, int] = {}
        for answer in await asyncio.gather(
            *(self._ask_offsets(BrokerId(leader), topic, each, time_ms) for leader, each in by_leader.items())
        ):
            found |= answer
        for partition in partitions:
            if partition not in found:
                found[partition] = await self._offset(topic, partition, time_ms)
        return found

    async def _ask_offsets(
        self, leader: BrokerId, topic: str, partitions: Sequence[int], time_ms: int
    ) -> Mapping[int, int]:
        """Of those that it knows at once."""
        try:
            client = await self._routes.broker(leader)
            response = await client.request(
                _LIST_OFFSETS, _LIST_OFFSETS_VERSION, _offset_question(topic, partitions, time_ms)
            )
        except (BrokerError, OSError):
            return {}
        return {
            each.partition_index: each.offset
            for each in response.topics[0].partitions
            if each.error_code == 0 and each.offset != _NONE
        }

    async def _offset(self, topic: str, partition: int, time_ms: int) -> int:
        async def ask(client: Client) -> int:
            response = await client.request(
                _LIST_OFFSETS, _LIST_OFFSETS_VERSION, _offset_question(topic, [partition], time_ms)
            )
            [result] = response.topics[0].partitions
            check(result.error_code)
            offset: int = result.offset
            return offset

        offset = await self._routes.at_leader(topic, partition, ask, PATIENCE_SECONDS)
        if offset == _NONE:
            return await self._offset(topic, partition, LATEST)
        return offset

    async def _fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int
    ) -> FetchResult:
        if self._waiting >= MAX_WAITING:
            wait_ms = 0

        async def ask(client: Client) -> FetchResult:
            [result] = await self._ask_fetch(client, topic, {partition: offset}, max_bytes, wait_ms)
            check(result.error_code)
            return result

        if wait_ms == 0:
            return await self._routes.at_leader(topic, partition, ask, PATIENCE_SECONDS)
        client = await self._routes.open_to_leader(topic, partition)
        self._waiting += 1
        try:
            return await ask(client)
        except (BrokerError, OSError):
            self._routes.forget(topic)
            raise
        finally:
            self._waiting -= 1
            client.close()

    async def _ask_fetch(
        self, client: Client, topic: str, offsets: Mapping[int, int], max_bytes: int, wait_ms: int
    ) -> Sequence[FetchResult]:
        partitions = [FetchPartition(partition, offset, max_bytes) for partition, offset in offsets.items()]
        request = FetchRequest(
            wait_ms,
            1,
            [FetchTopic(None, (await self._routes.topic(topic)).id, partitions)],
            [],
            max_bytes=max_bytes,
            isolation_level=_READ_COMMITTED,
            uses_topic_ids=True,
        )
        correlation_id = client.next_correlation_id()
        frame = encode_fetch_request(correlation_id, _FETCH_VERSION, client.client_id, request)
        async with asyncio.timeout(PATIENCE_SECONDS + wait_ms / 1000):
            answer = await client.exchange(correlation_id, frame)
        response = decode_fetch_response(answer, _FETCH_VERSION)
        check(response.error_code)
        return response.topics[0].partitions

    async def _out_of_range(self, topic: str, partition: int, offset: int) -> BrokerError:
        start = await self._offset(topic, partition, EARLIEST)
        end = await self._offset(topic, partition, LATEST)
        return BrokerError(
            ErrorCode.offset_out_of_range,
            f"{topic}-{partition} has offsets from {start} to {end}, and {offset} is not among them",
        )

    async def _work(self, size: int, work: Callable[[], T]) -> T:
        return work() if size < _POOL_FROM_BYTES else await self._threads.run("read", work)


def _damaged(topic: str, partition: int, offset: int, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.corrupt_message, f"records of {topic}-{partition} are damaged at offset {offset}: {reason}"
    )


def _offset_question(topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[str, Any]:
    asked = [
        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": time_ms}
        for partition in partitions
    ]
    topics = [{"name": topic, "partitions": asked}]
    return {"replica_id": -1, "isolation_level": _READ_COMMITTED, "topics": topics}


def _is_of_the_content(outcome: int | Exception) -> bool:
    return isinstance(outcome, BrokerError) and outcome.code in OF_THE_CONTENT


def _outcome(future: asyncio.Future[int]) -> int | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, Exception):
        raise error
    return error
