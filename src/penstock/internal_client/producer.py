"""A producer for many concurrent callers: each record is stored once, in order for each partition.

One batch of a partition is in flight at a time; records that arrive meanwhile make the next. Every caller has
a result within the delivery time: an offset, a refusal, or OutcomeUnknown. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.produce_loop import MAX_BATCH_BYTES, PartitionProducer, batches_of, size_of
from penstock.internal_client.routes import Routes
from penstock.records.building import NewRecord

MAX_BATCH_RECORDS = 2_000

REFUSED_FOR_CONTENT = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
    }
)
"""Errors of a batch because of one of its records, or their total size: other records may be accepted without it."""


@dataclass(slots=True)
class _Pending:
    """Records of one call, which are in one batch."""

    records: Sequence[NewRecord]
    size: int
    is_alone: bool
    deadline: float
    base_offset: asyncio.Future[int]


@dataclass(slots=True)
class _PartitionQueue:
    producer: PartitionProducer
    pending: deque[_Pending] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class IdempotentProducer:
    def __init__(self, routes: Routes, delivery_seconds: float = 30.0) -> None:
        self._routes = routes
        self._delivery_seconds = delivery_seconds
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}

    async def close(self) -> None:
        """Stop; callers that still wait get OutcomeUnknown."""
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def send(
        self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False
    ) -> asyncio.Future[int]:
        """Send one record; the future gives its offset once it is committed, or a BrokerError.

        `is_alone` sends a batch of this record alone, without a sequence: a broker deduplicates it by its
        idempotency key, as it may repeat a record of another producer.
        """
        return self._enqueue(topic, partition, [record], is_alone)

    def send_many(
        self, topic: str, partition: int, records: Sequence[NewRecord]
    ) -> list[tuple[asyncio.Future[int], int]]:
        """Send records in batches; each result is the base offset of one batch and its number of records.

        A batch is stored or refused as a whole.
        """
        return [
            (self._enqueue(topic, partition, batch, False), len(batch))
            for batch in batches_of(records, MAX_BATCH_RECORDS)
        ]

    def _enqueue(
        self, topic: str, partition: int, records: Sequence[NewRecord], is_alone: bool
    ) -> asyncio.Future[int]:
        queue = self._queues.get((topic, partition))
        if queue is None:
            producer = PartitionProducer(self._routes, topic, partition)
            queue = self._queues[topic, partition] = _PartitionQueue(producer)
        loop = asyncio.get_running_loop()
        base_offset: asyncio.Future[int] = loop.create_future()
        deadline = loop.time() + self._delivery_seconds
        queue.pending.append(_Pending(records, sum(map(size_of, records)), is_alone, deadline, base_offset))
        if queue.task is None:
            queue.task = loop.create_task(self._run(queue))
        return base_offset

    async def _run(self, queue: _PartitionQueue) -> None:
        batch: list[_Pending] = []
        try:
            # Records of the same loop turn share a batch.
            await asyncio.sleep(0)
            while queue.pending:
                batch = _next_batch(queue.pending)
                await self._deliver(queue.producer, batch)
        finally:
            queue.task = None
            _fail([*batch, *queue.pending], OutcomeUnknown("the producer was closed"))
            queue.pending.clear()

    async def _deliver(self, producer: PartitionProducer, batch: list[_Pending]) -> None:
        """Deliver a batch, or its halves where it is refused for the content of a record."""
        try:
            offset = await _write(producer, batch)
        except (PenstockError, OSError) as error:
            if len(batch) > 1 and isinstance(error, BrokerError) and error.code in REFUSED_FOR_CONTENT:
                middle = len(batch) // 2
                await self._deliver(producer, batch[:middle])
                await self._deliver(producer, batch[middle:])
            else:
                _fail(batch, error)
            return
        for each in batch:
            if not each.base_offset.done():
                each.base_offset.set_result(offset)
            offset += len(each.records)


async def _write(producer: PartitionProducer, batch: list[_Pending]) -> int:
    deadline = batch[0].deadline
    if asyncio.get_running_loop().time() >= deadline:
        raise BrokerError(
            ErrorCode.request_timed_out,
            "the delivery time was over before this record could be sent; nothing was stored",
        )
    records = [record for each in batch for record in each.records]
    offset = await producer.write(records, deadline, has_sequence=not batch[0].is_alone)
    if offset < 0:
        raise OutcomeUnknown("the record is stored, but the broker does not know its offset any more")
    return offset


def _next_batch(pending: deque[_Pending]) -> list[_Pending]:
    first = pending.popleft()
    batch, size, count = [first], first.size, len(first.records)
    while (
        pending
        and not (first.is_alone or pending[0].is_alone)
        and count + len(pending[0].records) <= MAX_BATCH_RECORDS
        and size + pending[0].size <= MAX_BATCH_BYTES
    ):
        size += pending[0].size
        count += len(pending[0].records)
        batch.append(pending.popleft())
    return batch


def _fail(batch: list[_Pending], error: Exception) -> None:
    for each in batch:
        if not each.base_offset.done():
            each.base_offset.set_exception(error)
