"""The idempotent produce loop: a batch of a partition is sent with its sequence number until its outcome is
known.

A broker recognises a repeated sequence number, so the batch is stored once. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from penstock.errors import BrokerError, DiskFull, ErrorCode, PenstockError, ProtocolError
from penstock.internal_client.api import check_error
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.produce_requests import ATTEMPT_SECONDS, ProduceRequests, ResultReceiver
from penstock.internal_client.retries import MAX_RETRY_SECONDS, MOVED, RETRY_SECONDS, is_retriable
from penstock.internal_client.routes import Routes
from penstock.internal_client.transactions import ProducerIdentity, init_producer_id
from penstock.net.acting import Actor
from penstock.net.broker_connection import BrokerConnection
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.unreachable import reason_of
from penstock.wire.produce import ProduceResult

MAX_BATCH_BYTES = 512 * 1024
_RECORD_OVERHEAD_BYTES = 64
_SEQUENCES = 1 << 31
_NO_PRODUCER = ProducerIdentity(None, -1, -1)

_UNKNOWN_PRODUCER = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
    }
)
"""Errors of a broker that does not know the previous batches of this producer, or knows others."""

_PERHAPS_AFTER_APPEND = MOVED | {
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas_after_append,
}


Begun = ProduceResult | BaseException | None
"""Outcome of a first attempt by `PartitionProducer.begin`; None if there was no such attempt."""


class PartitionProducer:
    """Writer of one partition. Only one `write` may be in progress."""

    def __init__(
        self,
        routes: Routes,
        topic: str,
        partition: int,
        producer: ProducerIdentity | None = None,
        codec: Codec = Codec.NONE,
        *,
        waits_for_space: bool = False,
        requests: ProduceRequests | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Create a writer that uses the given producer, or obtains producer ids itself if `producer` is None.

        Writers with the same `requests` share Produce requests. With `waits_for_space`, a batch is retried
        while the broker's disk is full; otherwise DiskFull is raised at once. `actor` is the client for which
        a gateway writes.
        """
        self._routes = routes
        self._topic, self._partition = topic, partition
        self._producer = producer
        self._has_own_id = producer is None
        self._codec = codec
        self._waits_for_space = waits_for_space
        self._requests = requests or ProduceRequests()
        self._actor = actor
        self._sequence = 0

    def begin(
        self,
        records: Sequence[NewRecord],
        deadline: float,
        result: ResultReceiver,
        *,
        has_sequence: bool = True,
    ) -> bool:
        """Send one batch once, without a task. Returns False, and sends nothing, if a producer id or a
        connection is missing.

        After success the caller calls `advance`. After any other outcome it calls `write`, which repeats the
        batch.
        """
        connection = self._routes.known_connection(self._topic, self._partition)
        if self._producer is None or connection is None:
            return False
        producer = self._producer if has_sequence else _NO_PRODUCER
        batch = self._build(producer, records)
        until = min(deadline, asyncio.get_running_loop().time() + 2 * ATTEMPT_SECONDS)
        place = self._topic, self._partition
        self._requests.submit(connection, producer.transactional_id, place, batch, result, until, self._actor)
        return True

    def advance(self, count: int) -> None:
        """Advance the sequence number by the records of a stored batch."""
        self._sequence = (self._sequence + count) % _SEQUENCES

    async def write(
        self, records: Sequence[NewRecord], deadline: float, *, has_sequence: bool = True, begun: Begun = None
    ) -> int:
        """Write one batch and return its base offset when it is committed; -1 if the broker no longer knows
        the offset.

        Raises BrokerError or OSError if nothing was stored, OutcomeUnknown at the deadline if that is not
        certain. A batch without a sequence number is deduplicated by its idempotency key alone. `begun` is
        the outcome of a first attempt by `begin`.
        """
        loop = asyncio.get_running_loop()
        pause_seconds, may_be_stored, was_stored = RETRY_SECONDS, False, False
        while True:
            try:
                if begun is not None:
                    attempt, begun, may_be_stored = begun, None, True
                    result = _outcome(attempt)
                else:
                    async with asyncio.timeout_at(min(deadline, loop.time() + 2 * ATTEMPT_SECONDS)):
                        producer = self._producer or await self._obtain_producer()
                        connection = await self._routes.leader(self._topic, self._partition)
                        was_stored, may_be_stored = may_be_stored, True
                        result = await self._send(connection, producer, records, has_sequence)
                is_full = DiskFull.matches(result.error_code, result.error_message)
                may_be_stored = was_stored or (result.error_code in _PERHAPS_AFTER_APPEND and not is_full)
                self._check(result)
            except (BrokerError, OSError, ProtocolError) as error:
                self._routes.forget(self._topic)
                if self._is_unknown_producer(error) and not may_be_stored:
                    self._producer = None
                    continue
                if not self._may_retry(error, may_be_stored) or loop.time() + pause_seconds > deadline:
                    self._raise(error, may_be_stored)
            else:
                if has_sequence:
                    self.advance(len(records))
                return result.base_offset
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)

    async def _obtain_producer(self) -> ProducerIdentity:
        self._producer = await self._routes.at_any(lambda connection: init_producer_id(connection, None))
        self._sequence = 0
        return self._producer

    async def _send(
        self,
        connection: BrokerConnection,
        own: ProducerIdentity,
        records: Sequence[NewRecord],
        has_sequence: bool,
    ) -> ProduceResult:
        producer = own if has_sequence else _NO_PRODUCER
        batch = self._build(producer, records)
        place = self._topic, self._partition
        return await self._requests.send(connection, producer.transactional_id, place, batch, self._actor)

    def _build(self, producer: ProducerIdentity, records: Sequence[NewRecord]) -> bytearray:
        return build_batch(
            records,
            codec=self._codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=-1 if producer is _NO_PRODUCER else self._sequence,
            transactional=producer.transactional_id is not None,
        )

    def _check(self, result: ProduceResult) -> None:
        code = result.error_code
        if code == ErrorCode.duplicate_sequence_number:
            return
        if code == ErrorCode.unknown_topic_or_partition:
            # The leader may not know a new topic yet. If the topic was deleted, the next Metadata response
            # shows that.
            raise BrokerError(
                ErrorCode.leader_not_available, f"{self._topic}-{self._partition} is unknown to its leader"
            )
        if DiskFull.matches(code, result.error_message):
            raise DiskFull(result.error_message or "")
        check_error(code, result.error_message)

    def _is_unknown_producer(self, error: PenstockError | OSError) -> bool:
        return self._has_own_id and isinstance(error, BrokerError) and error.code in _UNKNOWN_PRODUCER

    def _may_retry(self, error: BrokerError | OSError | ProtocolError, may_be_stored: bool) -> bool:
        if isinstance(error, ProtocolError):
            return False
        if isinstance(error, DiskFull) and not may_be_stored:
            return self._waits_for_space
        is_stored_once = isinstance(error, BrokerError) and (
            error.code is ErrorCode.not_enough_replicas_after_append
        )
        return is_stored_once or is_retriable(error)

    def _raise(self, error: PenstockError | OSError, may_be_stored: bool) -> None:
        if not may_be_stored:
            raise error
        if self._has_own_id:
            # The sequence number of the next batch depends on this outcome, which is unknown.
            self._producer = None
        reason = str(error) if isinstance(error, PenstockError) else reason_of(error)
        raise OutcomeUnknown(reason) from error


def _outcome(attempt: ProduceResult | BaseException) -> ProduceResult:
    if isinstance(attempt, BaseException):
        raise attempt
    return attempt


def batches_of(records: Sequence[NewRecord], max_records: int) -> Iterator[Sequence[NewRecord]]:
    """Split records into batches of at most MAX_BATCH_BYTES; a larger record is a batch of its own."""
    start, size = 0, 0
    for place, record in enumerate(records):
        added = size_of(record)
        if place > start and (size + added > MAX_BATCH_BYTES or place - start >= max_records):
            yield records[start:place]
            start, size = place, 0
        size += added
    if start < len(records):
        yield records[start:]


def size_of(record: NewRecord) -> int:
    """Upper bound of the size of a record in a batch, in bytes."""
    size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
