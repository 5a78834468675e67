"""Writes records to a cluster: in order for each partition, each once, in batches that form while the last is away.

One batch of a partition is on its way at a time; what comes meanwhile makes the next. A batch is repeated with its
sequence until there is an answer, so it is stored once. Where time is over and nobody can say what became of it,
`OutcomeUnknown` says so, and the partition goes on under another producer id. A full disk is told at once: nothing was
stored, and trying on would only take time. Whoever sends hears within the time that
was given for a delivery, however many wait before it. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.errors import BrokerError, DiskFull, ErrorCode, PenstockError
from penstock.net.client import Client
from penstock.net.routes import MAX_RETRY_SECONDS, MOVED, RETRIABLE, RETRY_SECONDS, Routes, check
from penstock.records.building import NewRecord, build_batch
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

MAX_BATCH_BYTES = 512 * 1024
MAX_BATCH_RECORDS = 2_000
_ACKS_ALL = -1
_ATTEMPT_SECONDS = 10.0
_PRODUCE_VERSION = 11
_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION = 22, 4
_RECORD_OVERHEAD_BYTES = 64
_SEQUENCES = 1 << 31

_ORPHANED = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
    }
)
"""The broker knows another history of this producer."""


_PERHAPS_AFTER_APPEND = MOVED | {
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas_after_append,
}


class OutcomeUnknown(PenstockError):
    """The record may or may not be stored."""


OF_THE_CONTENT = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
    }
)
"""A batch is refused for one of its records, or for all of them together: each may do without the others."""


@dataclass(slots=True)
class _Waiting:
    records: Sequence[NewRecord]
    size: int
    is_alone: bool
    deadline: float
    done: asyncio.Future[int]


@dataclass(slots=True)
class _Lane:
    """One partition: what waits, and under which producer it is written."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = 0


class Sender:
    def __init__(self, routes: Routes, delivery_seconds: float = 30.0) -> None:
        self._routes = routes
        self._delivery_seconds = delivery_seconds
        self._lanes: dict[tuple[str, int], _Lane] = {}

    async def close(self) -> None:
        """Whoever still waits is told that the outcome is not known."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def send(
        self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False
    ) -> asyncio.Future[int]:
        """Its offset, once it is committed; BrokerError where it is refused. `is_alone`: in a batch of its own, which
        is told from its repetitions by its idempotency key and not by a sequence, as it may be another's repetition."""
        return self._send(topic, partition, [record], is_alone)

    def send_many(
        self, topic: str, partition: int, records: Sequence[NewRecord]
    ) -> list[tuple[asyncio.Future[int], int]]:
        """As `send` for each, with less ado: the records in stretches, each with the offset of its first to come and
        how many there are. A stretch is in one batch: refused or stored as a whole."""
        sent = []
        start, size = 0, 0
        for place, record in enumerate(records):
            size += _size_of(record)
            if size > MAX_BATCH_BYTES or place - start == MAX_BATCH_RECORDS:
                if place > start:
                    sent.append((self._send(topic, partition, records[start:place], False), place - start))
                start, size = place, _size_of(record)
        sent.append((self._send(topic, partition, records[start:], False), len(records) - start))
        return sent

    def _send(
        self, topic: str, partition: int, records: Sequence[NewRecord], is_alone: bool
    ) -> asyncio.Future[int]:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        deadline = loop.time() + self._delivery_seconds
        lane.waiting.append(_Waiting(records, sum(map(_size_of, records)), is_alone, deadline, done))
        if lane.task is None:
            lane.task = loop.create_task(self._run(lane, topic, partition))
        return done

    async def _run(self, lane: _Lane, topic: str, partition: int) -> None:
        batch: list[_Waiting] = []
        try:
            # What is sent in the same turn of the loop goes together.
            await asyncio.sleep(0)
            while lane.waiting:
                batch = _next_batch(lane.waiting)
                await self._deliver_parts(lane, topic, partition, batch)
        finally:
            lane.task = None
            _fail([*batch, *lane.waiting], OutcomeUnknown("the sender was closed"))
            lane.waiting.clear()

    async def _deliver_parts(self, lane: _Lane, topic: str, partition: int, batch: list[_Waiting]) -> None:
        """The batch, or its halves where it is refused for what is in it."""
        try:
            offset = await self._deliver(lane, topic, partition, batch)
        except (PenstockError, OSError) as error:
            if len(batch) > 1 and isinstance(error, BrokerError) and error.code in OF_THE_CONTENT:
                middle = len(batch) // 2
                await self._deliver_parts(lane, topic, partition, batch[:middle])
                await self._deliver_parts(lane, topic, partition, batch[middle:])
            else:
                _fail(batch, error)
            return
        for each in batch:
            if not each.done.done():
                each.done.set_result(offset)
            offset += len(each.records)

    async def _deliver(self, lane: _Lane, topic: str, partition: int, batch: list[_Waiting]) -> int:
        loop, deadline = asyncio.get_running_loop(), batch[0].deadline
        if loop.time() >= deadline:
            raise BrokerError(
                ErrorCode.request_timed_out, "others before it took all the time; it was not sent"
            )
        pause, may_be_stored = RETRY_SECONDS, False
        while True:
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + 2 * _ATTEMPT_SECONDS)):
                    if lane.producer_id < 0:
                        await self._take_producer_id(lane)
                    client = await self._routes.leader(topic, partition)
                    was_stored, may_be_stored = may_be_stored, True
                    result = await self._produce(client, lane, topic, partition, batch)
                may_be_stored = was_stored or result.error_code in _PERHAPS_AFTER_APPEND
                if result.error_code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                    if not batch[0].is_alone:
                        count = sum(len(each.records) for each in batch)
                        lane.sequence = (lane.sequence + count) % _SEQUENCES
                    return _offset_of(result)
                if result.error_code == ErrorCode.unknown_topic_or_partition:
                    # Its leader has yet to hear of it; where it is gone, the next look says so.
                    raise BrokerError(ErrorCode.leader_not_available, f"{topic}-{partition} is not there")
                if DiskFull.is_told_by(result.error_code, result.error_message):
                    may_be_stored = was_stored
                    raise DiskFull(result.error_message or "")
                check(result.error_code, result.error_message)
            except (BrokerError, OSError) as error:
                self._routes.forget(topic)
                is_orphaned = isinstance(error, BrokerError) and error.code in _ORPHANED
                if is_orphaned and not may_be_stored:
                    lane.producer_id = -1
                    continue
                is_refused_for_now = isinstance(error, DiskFull) and not may_be_stored
                if is_refused_for_now or not _is_worth_repeating(error) or loop.time() + pause > deadline:
                    if may_be_stored:
                        lane.producer_id = -1
                        raise OutcomeUnknown(str(error) or type(error).__name__) from error
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)

    async def _produce(
        self, client: Client, lane: _Lane, topic: str, partition: int, batch: list[_Waiting]
    ) -> ProduceResult:
        records = build_batch(
            [record for each in batch for record in each.records],
            producer_id=-1 if batch[0].is_alone else lane.producer_id,
            producer_epoch=-1 if batch[0].is_alone else lane.producer_epoch,
            base_sequence=-1 if batch[0].is_alone else lane.sequence,
        )
        timeout_ms = int(_ATTEMPT_SECONDS * 1000)
        topics = [ProduceTopic(topic, None, [ProducePartition(partition, memoryview(records))])]
        request = ProduceRequest(None, _ACKS_ALL, timeout_ms, topics)
        correlation_id = client.next_correlation_id()
        frame = encode_produce_request(correlation_id, _PRODUCE_VERSION, client.client_id, request)
        answer = await client.exchange(correlation_id, frame)
        [answered] = decode_produce_response(answer, _PRODUCE_VERSION).topics
        return answered.partitions[0]

    async def _take_producer_id(self, lane: _Lane) -> None:
        fields = {"transactional_id": None, "transaction_timeout": timedelta(minutes=1)}
        response = await self._routes.ask_any(_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, fields)
        check(response.error_code)
        lane.producer_id, lane.producer_epoch = response.producer_id, response.producer_epoch
        lane.sequence = 0


def _next_batch(waiting: deque[_Waiting]) -> list[_Waiting]:
    first = waiting.popleft()
    batch, size, count = [first], first.size, len(first.records)
    while (
        waiting
        and not (first.is_alone or waiting[0].is_alone)
        and count + len(waiting[0].records) <= MAX_BATCH_RECORDS
        and size + waiting[0].size <= MAX_BATCH_BYTES
    ):
        size += waiting[0].size
        count += len(waiting[0].records)
        batch.append(waiting.popleft())
    return batch


def _size_of(record: NewRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size


def _offset_of(result: ProduceResult) -> int:
    if result.base_offset < 0:
        raise OutcomeUnknown("it is stored, but the broker does not remember where")
    return result.base_offset


def _is_worth_repeating(error: BrokerError | OSError) -> bool:
    return (
        not isinstance(error, BrokerError)
        or error.code in RETRIABLE
        or error.code is ErrorCode.not_enough_replicas_after_append
    )


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for each in batch:
        if not each.done.done():
            each.done.set_exception(error)
