"""Idempotent producer of a sink task: writes record batches in order for each partition, each once.

A batch is retried with the same sequence number until a broker responds. If the batch is rejected or times
out, the task fails: then the transaction, or the next attempt of the task, decides about the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.api import RESPONSE_SECONDS, check_error
from penstock.internal_client.routes import Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

RETRY_SECONDS = 120.0
MAX_BATCH_BYTES = 512 * 1024
MAX_BATCH_RECORDS = 5_000
_RECORD_OVERHEAD_BYTES = 64
_SEQUENCES = 1 << 31
_ACKS_ALL = -1
_ATTEMPT_MS = 10_000
_PRODUCE_VERSION = 12
"""First version that adds partitions to the transaction implicitly (KIP-890)."""
_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION = 22, 4


class NotWritten(PenstockError):
    """A broker rejected the rows, or no broker stored them in time."""


class WriterIdentity(NamedTuple):
    """Producer id, epoch and optional transactional id that records are written with."""

    transactional_id: str | None
    producer_id: int
    epoch: int


class RecordPosition(NamedTuple):
    """Position of a written record."""

    topic: str
    topic_id: str
    partition: int
    offset: int


async def new_writer_identity(routes: Routes) -> WriterIdentity:
    """Allocate a producer id without a transactional id."""
    fields = {"transactional_id": None, "transaction_timeout": timedelta(minutes=1)}
    response = await routes.ask_any(_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, fields)
    check_error(response.error_code)
    return WriterIdentity(None, response.producer_id, response.producer_epoch)


class BatchProducer:
    def __init__(self, routes: Routes, identity: WriterIdentity, codec: Codec = Codec.NONE) -> None:
        self.identity = identity
        self._routes = routes
        self._codec = codec
        self._sequences: dict[tuple[str, int], int] = {}

    async def write(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Write records, and return when all are committed. Returns the base offset of the last batch. Calls
        for the same partition must not overlap.
        """
        offset = -1
        for batch in _batches(records):
            try:
                offset = await self._deliver(topic, partition, batch)
            except (BrokerError, OSError) as error:
                problem = error.code.name if isinstance(error, BrokerError) else "no response"
                raise NotWritten(
                    f"cannot write to {topic}-{partition}: {problem} {error}".rstrip()
                ) from error
        return offset

    async def _deliver(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        transactional_id, producer_id, epoch = self.identity
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        topics = [ProduceTopic(topic, None, [ProducePartition(partition, memoryview(batch))])]
        request = ProduceRequest(transactional_id, _ACKS_ALL, _ATTEMPT_MS, topics)

        async def ask(client: BrokerConnection) -> int:
            correlation_id = client.next_correlation_id()
            frame = encode_produce_request(correlation_id, _PRODUCE_VERSION, client.client_id, request)
            async with asyncio.timeout(RESPONSE_SECONDS):
                answer = await client.exchange(correlation_id, frame)
            [answered] = decode_produce_response(answer, _PRODUCE_VERSION).topics
            [result] = answered.partitions
            _check_stored(result.error_code, result.error_message)
            return result.base_offset

        offset = await self._routes.at_leader(topic, partition, ask, RETRY_SECONDS)
        self._sequences[topic, partition] = (sequence + len(records)) % _SEQUENCES
        return offset


def _check_stored(code: int, message: str | None) -> None:
    if code == ErrorCode.not_enough_replicas_after_append:
        code = (
            ErrorCode.not_enough_replicas
        )  # a retry of the same batch is stored once and succeeds when enough replicas have it
    elif code == ErrorCode.unknown_topic_or_partition:
        code = (
            ErrorCode.leader_not_available
        )  # the leader may not know the topic yet; if the topic was deleted, the next metadata request fails
    if code != ErrorCode.duplicate_sequence_number:
        check_error(code, message)


def _batches(records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
    start, size = 0, 0
    for position, record in enumerate(records):
        added = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        added += sum(len(name) + len(value or b"") for name, value in record.headers)
        if position > start and (size + added > MAX_BATCH_BYTES or position - start >= MAX_BATCH_RECORDS):
            yield records[start:position]
            start, size = position, 0
        size += added
    if start < len(records):
        yield records[start:]
