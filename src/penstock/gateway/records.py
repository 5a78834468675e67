"""Records of topics for HTTP clients: produce, and read committed records by offset, by time and by key.

A long poll uses a connection of its own. Large responses are decoded in a thread pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode, InvalidBatch
from penstock.gateway.fetched_records import take_records
from penstock.internal_client.api import check_error
from penstock.internal_client.keyed_reads import KeyedRead, KeyedReads, KeyReceiver
from penstock.internal_client.producer import REFUSED_FOR_CONTENT, IdempotentProducer, OffsetReceiver
from penstock.internal_client.records import EARLIEST, LATEST, RecordCalls, Truncated, fetch
from penstock.internal_client.routes import PATIENCE_SECONDS, Routes
from penstock.model import TopicPartition
from penstock.net.acting import acting_for
from penstock.net.broker_connection import BrokerConnection
from penstock.observability.alarms import AlarmKind, Alarms
from penstock.records.building import NewRecord
from penstock.records.iteration import Record
from penstock.threads import Threads
from penstock.wire.fetch import AbortedTransaction, FetchResult
from penstock.wire.fetch_by_key import KeyResult

T = TypeVar("T")

MAX_WAITING = 500
"""Maximum number of concurrent long polls at leaders. Each has a connection of its own; further reads do not wait."""
BUSY_WAIT_MS = 200
"""Time in milliseconds after which a wait for several partitions ends if it cannot poll at the leader."""
_POOL_FROM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Committed records of a partition, and the offset from which the next read continues."""

    records: tuple[Record, ...]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class KeyPage(NamedTuple):
    """Committed records of one key in a partition."""

    records: tuple[Record, ...]
    next_offset: int
    is_complete: bool
    """True if the key had no further record at or after `next_offset` when it was read."""


class Limits(NamedTuple):
    """Limits of one page of records."""

    max_records: int
    max_bytes: int


class GatewayRecords:
    def __init__(
        self,
        routes: Routes,
        producer: IdempotentProducer,
        keyed_reads: KeyedReads,
        threads: Threads,
        alarms: Alarms,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._routes = routes
        self._records = RecordCalls(routes)
        self._producer = producer
        self._keyed_reads = keyed_reads
        self._threads = threads
        self._alarms = alarms
        self._waiting = 0
        self._scanning = asyncio.Lock()
        self._corrupt: dict[TopicPartition, int] = {}
        """Offset of the damaged batch that was fetched last, for each partition with an alarm."""

    async def produce(self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False) -> int:
        """Produce one record, and return its offset when it is committed.

        With `is_alone` the record gets a batch of its own, which an idempotency key requires.
        """
        actor = acting_for.get()
        return await self._producer.send(topic, partition, record, is_alone=is_alone, actor=actor)

    def submit(
        self, topic: str, partition: int, record: NewRecord, offset: OffsetReceiver, *, is_alone: bool = False
    ) -> None:
        """Produce one record as the gateway's own user. The receiver `offset` gets its offset or the failure."""
        self._producer.submit(topic, partition, [record], offset, is_alone=is_alone)

    async def produce_many(
        self, topic: str, records: Sequence[tuple[int, NewRecord]]
    ) -> Sequence[int | Exception]:
        """Produce records, given with their partitions; return the offset or the failure of each."""
        actor = acting_for.get()
        places: dict[int, list[int]] = {}
        for place, (partition, _) in enumerate(records):
            places.setdefault(partition, []).append(place)
        sent = [
            batch
            for partition, of_partition in places.items()
            for batch in self._producer.send_many(
                topic, partition, [records[each][1] for each in of_partition], actor
            )
        ]
        outcomes: dict[int, int | Exception] = {}
        order = iter([place for of_partition in places.values() for place in of_partition])
        for (_, count), outcome in zip(sent, await _outcomes([each for each, _ in sent]), strict=True):
            for nth in range(count):
                outcomes[next(order)] = outcome + nth if isinstance(outcome, int) else outcome
        # If a broker refused a batch because of its content, its records are sent again in separate batches.
        refused = [place for place, outcome in sorted(outcomes.items()) if _is_refused_for_content(outcome)]
        if len(records) > 1 and refused:
            again = [self._producer.send(topic, *records[place], actor=actor) for place in refused]
            outcomes |= zip(refused, await _outcomes(again), strict=True)
        return [outcome for _, outcome in sorted(outcomes.items())]

    async def read(
        self, topic: str, partition: int, offset: int, limits: Limits, wait_ms: int = 0
    ) -> RecordPage:
        """Read committed records from `offset` on. If there are none, wait up to `wait_ms` for the first one.

        Raises OFFSET_OUT_OF_RANGE if the log starts later or ends earlier.
        """
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
        return RecordPage(taken, next_offset, result.high_watermark, result.log_start_offset)

    async def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> FetchResult:
        """Fetch committed record batches from `offset` on, without decoding them."""
        return await self._records.fetch(topic, partition, offset, max_bytes)

    def now_ms(self) -> int:
        """Present time, by which the expiry of messages is decided."""
        return self._clock.now_ms()

    async def in_pool(self, work: Callable[[], T]) -> T:
        """Run work on fetched batches in the thread pool for reads, one call at a time.

        Concurrent calls would not be faster, because threads share the interpreter lock, and would delay the
        event loop.
        """
        async with self._scanning:
            return await self._threads.run("read", work)

    async def wait_for_any(self, topic: str, offsets: Mapping[int, int], wait_ms: int) -> None:
        """Wait until one of the partitions may have a committed record at or after its offset, but at most
        `wait_ms`. May return earlier.

        One Fetch request waits at each leader, on a connection of its own.
        """
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
        """Wait at one leader. An error ends the wait early; the read that follows reports the error."""
        if self._waiting >= MAX_WAITING:
            await asyncio.sleep(min(wait_ms, BUSY_WAIT_MS) / 1000)
            return
        self._waiting += 1
        connection: BrokerConnection | None = None
        try:
            connection = await self._routes.open_to_leader(topic, next(iter(offsets)))
            await fetch(connection, (await self._routes.topic(topic)).id, offsets, 1, wait_ms)
        except (BrokerError, OSError):
            self._routes.forget(topic)
            await asyncio.sleep(min(wait_ms, BUSY_WAIT_MS) / 1000)
        finally:
            self._waiting -= 1
            if connection is not None:
                connection.close()

    async def read_key(
        self, topic: str, partition: int, key: bytes, from_offset: int, limits: Limits, wait_ms: int = 0
    ) -> KeyPage:
        """Read committed records of one key from `from_offset` on, by the key index of the topic.

        If there are none, wait up to `wait_ms` for the first one. The number of waiting callers is not limited.
        """
        wanted = KeyedRead(topic, partition, key, from_offset, limits.max_records, limits.max_bytes, wait_ms)
        found = await self._keyed_reads.read(wanted, PATIENCE_SECONDS + wait_ms / 1000)
        records = memoryview(found.records)
        taken, _ = await self._take(topic, partition, from_offset, records, None, limits)
        return KeyPage(taken, found.next_offset, found.is_complete)

    def begin_read_key(self, wanted: KeyedRead, receiver: KeyReceiver) -> Callable[[], None] | None:
        """Send one lookup of records by key, without a task; return the function that gives up the read.

        Returns None, and has sent nothing, if the read has to wait for metadata or a connection first.
        """
        return self._keyed_reads.begin(wanted, receiver)

    def take_key(self, wanted: KeyedRead, found: KeyResult) -> KeyPage | None:
        """Decode the result of `begin_read_key`. Returns None if `read_key` has to be used instead: the result is
        large or an error, or there are damaged records.
        """
        if found.error_code or self._corrupt or len(found.records) >= _POOL_FROM_BYTES:
            return None
        try:
            taken, _ = take_records(memoryview(found.records), None, wanted.from_offset, wanted.max_records)
        except InvalidBatch:
            return None
        return KeyPage(taken, found.next_offset, found.is_complete)

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """Return by partition the first offset with a timestamp of at least `time_ms`, or for EARLIEST or LATEST."""
        return await self._records.offsets(topic, partitions, time_ms)

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> Mapping[int, Truncated]:
        """Delete the records below an offset in each partition (-1: the high watermark). Returns the result by
        partition.
        """
        return await self._records.delete_before(topic, offsets)

    async def _take(
        self,
        topic: str,
        partition: int,
        offset: int,
        records: memoryview,
        aborted: Sequence[AbortedTransaction] | None,
        limits: Limits,
    ) -> tuple[tuple[Record, ...], int]:
        """Decode fetched records. If they are damaged, raise an error with their offset, and an alarm that is cleared
        when they can be read again.
        """
        name, now_ms = TopicPartition(topic, partition), self._clock.now_ms()
        try:
            taken = await self._decode(
                len(records), lambda: take_records(records, aborted, offset, limits.max_records, now_ms)
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

    async def _fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int
    ) -> FetchResult:
        if wait_ms == 0 or self._waiting >= MAX_WAITING:
            return await self._records.fetch(topic, partition, offset, max_bytes)
        connection = await self._routes.open_to_leader(topic, partition)
        self._waiting += 1
        try:
            topic_id = (await self._routes.topic(topic)).id
            [result] = await fetch(connection, topic_id, {partition: offset}, max_bytes, wait_ms)
            check_error(result.error_code)
        except (BrokerError, OSError):
            self._routes.forget(topic)
            raise
        finally:
            self._waiting -= 1
            connection.close()
        return result

    async def _out_of_range(self, topic: str, partition: int, offset: int) -> BrokerError:
        start = await self._records.offset(topic, partition, EARLIEST)
        end = await self._records.offset(topic, partition, LATEST)
        return BrokerError(
            ErrorCode.offset_out_of_range,
            f"{topic}-{partition} has offsets from {start} to {end}, and {offset} is not among them",
        )

    async def _decode(self, size: int, work: Callable[[], T]) -> T:
        return work() if size < _POOL_FROM_BYTES else await self._threads.run("read", work)


def _damaged(topic: str, partition: int, offset: int, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.corrupt_message, f"records of {topic}-{partition} are damaged at offset {offset}: {reason}"
    )


async def _outcomes(sent: Sequence[asyncio.Future[int]]) -> list[int | Exception]:
    await asyncio.wait(sent)
    return [_outcome(future) for future in sent]


def _is_refused_for_content(outcome: int | Exception) -> bool:
    return isinstance(outcome, BrokerError) and outcome.code in REFUSED_FOR_CONTENT


def _outcome(future: asyncio.Future[int]) -> int | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, Exception):
        raise error
    return error
