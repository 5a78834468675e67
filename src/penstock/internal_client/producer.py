"""A producer for many concurrent callers: each record is stored once, and records of a partition are stored
in order.

One batch of a partition is in flight at a time; records that arrive meanwhile form the next batch. Batches of
the same loop turn for the same broker share a request (`produce_requests.py`). Every caller gets a result
within the delivery time: an offset, a refusal, or OutcomeUnknown. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.produce_loop import (
    MAX_BATCH_BYTES,
    Begun,
    PartitionProducer,
    batches_of,
    size_of,
)
from penstock.internal_client.produce_requests import ProduceRequests
from penstock.internal_client.routes import Routes
from penstock.net.acting import Actor, own_context
from penstock.records.building import NewRecord
from penstock.wire.produce import ProduceResult

MAX_BATCH_RECORDS = 2_000
MAX_IDLE_QUEUES = 10_000

REFUSED_FOR_CONTENT = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
    }
)
"""Errors that refuse a batch because of one of its records or because of their total size. Other records of
the batch may be accepted in a batch of their own.
"""


class OffsetReceiver(Protocol):
    """Receiver of a result: a future, or an object that is called in the loop turn in which the response arrives."""

    def done(self) -> bool:
        """True if the result is no longer wanted."""
        ...

    def set_result(self, offset: int, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


@dataclass(slots=True)
class _Pending:
    """Records of one call, which are sent in one batch."""

    records: Sequence[NewRecord]
    size: int
    is_alone: bool
    deadline: float
    base_offset: OffsetReceiver


@dataclass(slots=True)
class _PartitionQueue:
    producer: PartitionProducer
    pending: deque[_Pending] = field(default_factory=deque)
    sending: list[_Pending] = field(default_factory=list)
    """Calls whose records are in the batch that is being delivered."""
    is_busy: bool = False
    """True if a batch is being delivered or is about to be."""
    task: asyncio.Task[None] | None = None
    """Task that delivers a batch after an attempt without a task was not enough; None otherwise."""


_QueueKey = tuple[str, int, Actor | None]
"""Topic, partition, and the client for which a gateway sends the records."""


class IdempotentProducer:
    def __init__(self, routes: Routes, delivery_seconds: float = 30.0) -> None:
        self._routes = routes
        self._delivery_seconds = delivery_seconds
        self._requests = ProduceRequests()
        self._queues: dict[_QueueKey, _PartitionQueue] = {}
        self._is_closed = False

    async def close(self) -> None:
        """Stop the producer. Callers that still wait get OutcomeUnknown."""
        self._is_closed = True
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in self._queues.values():
            _fail_all(queue)

    def send(
        self,
        topic: str,
        partition: int,
        record: NewRecord,
        *,
        is_alone: bool = False,
        actor: Actor | None = None,
    ) -> asyncio.Future[int]:
        """Send one record. The future gets its offset when it is committed, or a BrokerError.

        With `is_alone` the record is sent in a batch of its own and without a sequence number. The broker
        deduplicates it by its idempotency key, because it may repeat a record of another producer. `actor` is
        the client for which a gateway sends.
        """
        base_offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.submit(topic, partition, [record], base_offset, is_alone=is_alone, actor=actor)
        return base_offset

    def send_many(
        self, topic: str, partition: int, records: Sequence[NewRecord], actor: Actor | None = None
    ) -> list[tuple[asyncio.Future[int], int]]:
        """Send records in batches. Returns a future for the base offset of each batch, with the batch's
        number of records.

        A batch is stored or refused as a whole.
        """
        loop = asyncio.get_running_loop()
        sent: list[tuple[asyncio.Future[int], int]] = []
        for batch in batches_of(records, MAX_BATCH_RECORDS):
            base_offset: asyncio.Future[int] = loop.create_future()
            self.submit(topic, partition, batch, base_offset, actor=actor)
            sent.append((base_offset, len(batch)))
        return sent

    def submit(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        base_offset: OffsetReceiver,
        *,
        is_alone: bool = False,
        actor: Actor | None = None,
    ) -> None:
        """Send records in one batch, as `send` does. The receiver gets their base offset or the error."""
        queue = self._queues.get((topic, partition, actor))
        if queue is None:
            queue = self._open((topic, partition, actor))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._delivery_seconds
        queue.pending.append(_Pending(records, sum(map(size_of, records)), is_alone, deadline, base_offset))
        if not queue.is_busy:
            # Records of the same loop turn share a batch.
            queue.is_busy = True
            loop.call_soon(self._send_next, queue)

    def _open(self, key: _QueueKey) -> _PartitionQueue:
        topic, partition, actor = key
        if actor is not None and len(self._queues) >= MAX_IDLE_QUEUES:
            # There may be any number of users, so queues of users that hold no records are dropped.
            self._queues = {each: kept for each, kept in self._queues.items() if kept.is_busy or not each[2]}
        producer = PartitionProducer(self._routes, topic, partition, requests=self._requests, actor=actor)
        queue = self._queues[key] = _PartitionQueue(producer)
        return queue

    def _send_next(self, queue: _PartitionQueue) -> None:
        """Send the next batch. A task is created only if there is something to wait for besides the response."""
        if self._is_closed:
            _fail_all(queue)
        elif not queue.pending:
            queue.is_busy = False
        else:
            batch = queue.sending = _next_batch(queue.pending)
            try:
                if _is_overdue(batch) or not DeliveryAttempt(self, queue, batch).begin():
                    self.deliver_in_task(queue, None)
            except Exception as error:  # noqa: BLE001 - the senders report every failure
                queue.sending = []
                _fail(batch, error)
                asyncio.get_running_loop().call_soon(self._send_next, queue)

    def on_delivered(self, queue: _PartitionQueue, offset: int) -> None:
        """Give the callers of the batch their offsets, and send the next batch."""
        batch, queue.sending = queue.sending, []
        _succeed(batch, offset)
        self._send_next(queue)

    def deliver_in_task(self, queue: _PartitionQueue, begun: Begun) -> None:
        """Deliver the batch in a task. `begun` is the outcome of the attempt without a task."""
        if self._is_closed:
            _fail_all(queue)
        else:
            loop = asyncio.get_running_loop()
            queue.task = loop.create_task(self._run(queue, begun), context=own_context())

    async def _run(self, queue: _PartitionQueue, begun: Begun) -> None:
        try:
            await self._deliver(queue.producer, queue.sending, begun)
        except BaseException:
            queue.task = None
            _fail_all(queue)
            raise
        queue.task, queue.sending = None, []
        self._send_next(queue)

    async def _deliver(
        self,
        producer: PartitionProducer,
        batch: list[_Pending],
        begun: Begun = None,
    ) -> None:
        """Deliver a batch. If it is refused because of the content of a record, deliver its halves."""
        try:
            offset = await _write(producer, batch, begun)
        except (PenstockError, OSError) as error:
            if len(batch) > 1 and isinstance(error, BrokerError) and error.code in REFUSED_FOR_CONTENT:
                middle = len(batch) // 2
                await self._deliver(producer, batch[:middle])
                await self._deliver(producer, batch[middle:])
            else:
                _fail(batch, error)
            return
        _succeed(batch, offset)


class DeliveryAttempt:
    """Attempt to deliver a batch without a task; the receiver of its result."""

    __slots__ = ("_batch", "_is_over", "_owner", "_queue")

    def __init__(self, owner: IdempotentProducer, queue: _PartitionQueue, batch: list[_Pending]) -> None:
        self._owner = owner
        self._queue = queue
        self._batch = batch
        self._is_over = False

    def begin(self) -> bool:
        batch = self._batch
        return self._queue.producer.begin(
            _records_of(batch), batch[0].deadline, self, has_sequence=not batch[0].is_alone
        )

    def done(self) -> bool:
        # The queue no longer has this batch if the producer was closed.
        return self._is_over or self._queue.sending is not self._batch

    def set_result(self, result: ProduceResult, /) -> None:
        self._is_over = True
        if result.error_code or result.base_offset < 0:
            self._owner.deliver_in_task(self._queue, result)
            return
        if not self._batch[0].is_alone:
            self._queue.producer.advance(sum(len(each.records) for each in self._batch))
        self._owner.on_delivered(self._queue, result.base_offset)

    def set_exception(self, error: BaseException, /) -> None:
        self._is_over = True
        self._owner.deliver_in_task(self._queue, error)


async def _write(producer: PartitionProducer, batch: list[_Pending], begun: Begun) -> int:
    deadline = batch[0].deadline
    if begun is None and _is_overdue(batch):
        raise BrokerError(
            ErrorCode.request_timed_out,
            "the delivery timeout passed before this record could be sent; it was not stored",
        )
    has_sequence = not batch[0].is_alone
    offset = await producer.write(_records_of(batch), deadline, has_sequence=has_sequence, begun=begun)
    if offset < 0:
        raise OutcomeUnknown("the record is stored, but the broker no longer knows its offset")
    return offset


def _records_of(batch: list[_Pending]) -> list[NewRecord]:
    return [record for each in batch for record in each.records]


def _is_overdue(batch: list[_Pending]) -> bool:
    return asyncio.get_running_loop().time() >= batch[0].deadline


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


def _succeed(batch: list[_Pending], offset: int) -> None:
    for each in batch:
        if not each.base_offset.done():
            each.base_offset.set_result(offset)
        offset += len(each.records)


def _fail_all(queue: _PartitionQueue) -> None:
    """Fail all records that are left in a queue. Records are left only if the producer was closed."""
    left = [*queue.sending, *queue.pending]
    queue.sending = []
    queue.pending.clear()
    queue.is_busy = False
    _fail(left, OutcomeUnknown("the producer was closed"))


def _fail(batch: list[_Pending], error: Exception) -> None:
    for each in batch:
        if not each.base_offset.done():
            each.base_offset.set_exception(error)
