"""Produce: appends batches unchanged, and responds when they are as durable as the producer's acks setting demands.

`Replica.append` checks a batch, and `Replica.when_acknowledged` implements acks; this handler decodes, authorizes,
keeps the timeout and encodes. A batch is appended or refused before the next request of the connection is read; only
the wait for the commit overlaps with later requests. No code path responds with UNKNOWN_SERVER_ERROR, because clients
send duplicates after it.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.errors import BrokerError, CutOff, ErrorCode, ProtocolError
from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.records.batch import BatchHeader
from penstock.replication.admission import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from penstock.replication.replica import Replica
from penstock.server.dispatch import Api, Request
from penstock.server.plain_produce import handle_plain
from penstock.server.produce_routes import FIRST_RECORD_BATCH_VERSION
from penstock.server.produce_rules import (
    FIRST_ZSTD_VERSION,
    remember_refusal,
    unanswerable,
    writable_topic,
)
from penstock.server.produce_waits import DOUBT_SECONDS, not_committed_in_time
from penstock.server.security import Operation, ResourceType
from penstock.storage.log import AppendInfo
from penstock.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    ProduceTopicResult,
    decode_produce_request,
    encode_produce_response,
)

FIRST_ABORTABLE_VERSION = 11
FIRST_IMPLICIT_VERSION = 12
"""First version in which the partition's leader, not the client, adds the partition to the transaction (KIP-890)."""


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    produce = decode_produce_request(frame, position, request.header.api_version)
    request.session.is_producer = True
    operation = _ProduceOperation(request, produce)
    operation.run()
    answer = operation.answer()
    if operation.may_be_plain:
        request.context.produce_routes.remember(frame, position, request.header.api_version, produce)
    return answer


API = Api(0, 0, 13, handle_raw=handle, handle_plain=handle_plain)


class _ProduceOperation:
    """One Produce request: each batch is appended or held, and the response is sent when all are acknowledged."""

    __slots__ = (
        "_deadline",
        "_failed",
        "_held",
        "_later",
        "_now_ms",
        "_produce",
        "_replicas",
        "_request",
        "_timer",
        "_topics",
        "_transaction",
        "_waiting",
    )

    def __init__(self, request: Request, produce: ProduceRequest) -> None:
        self._request = request
        self._produce = produce
        self._now_ms = request.context.clock.now_ms()
        self._topics: list[ProduceTopicResult] = []
        self._held = 0
        self._failed: list[ProduceResult] = []
        self._replicas: set[Replica] = set()
        self._waiting: dict[ProduceResult, Replica] = {}
        self._later: PendingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        transactional_id = produce.transactional_id
        self._transaction = None if transactional_id is None else _Transaction(request, transactional_id)

    def run(self) -> None:
        for topic in self._produce.topics:
            results = [ProduceResult(partition.index) for partition in topic.partitions]
            self._topics.append(ProduceTopicResult(topic.name, topic.topic_id, results))
            try:
                name = self._check_topic(topic)
            except BrokerError as error:
                for partition, result in zip(topic.partitions, results, strict=True):
                    self._refuse_batch(topic, partition, result, error)
                continue
            for partition, result in zip(topic.partitions, results, strict=True):
                try:
                    self._append(name, topic, partition, result)
                except BrokerError as error:
                    self._refuse_batch(topic, partition, result, error)

    def answer(self) -> Answer:
        if not self._held and not self._waiting:
            return self._response()
        self._later = PendingResponse(barrier=self._held > 0)
        if not self._held:
            self._start_timer()
        return self._later

    @property
    def may_be_plain(self) -> bool:
        """True if a later request with the same bytes in front of the records may take the fast path
        (`plain_produce.py`): it passed all checks and no batch was held.
        """
        return (
            not self._failed
            and not self._held
            and len(self._replicas) == 1
            and all(replica.keyed is None for replica in self._replicas)
        )

    def _check_topic(self, topic: ProduceTopic) -> str:
        """Name of the topic. Raises BrokerError if this request may not write to it."""
        produce, version = self._produce, self._request.header.api_version
        if produce.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise BrokerError(ErrorCode.invalid_required_acks, f"acks={produce.acks}: give 0, 1 or -1 (all)")
        if version < FIRST_RECORD_BATCH_VERSION:
            raise BrokerError(
                ErrorCode.unsupported_for_message_format,
                "message formats before record batches (v2) are not supported; use Produce version 3 or later",
            )
        if produce.transactional_id is not None:
            if produce.acks != ACKS_ALL:
                raise BrokerError(ErrorCode.invalid_required_acks, "a transactional produce needs acks=all")
            self._request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, produce.transactional_id)
        return writable_topic(self._request.context, self._request.caller, topic.name, topic.topic_id)

    def _append(
        self, name: str, topic: ProduceTopic, partition: ProducePartition, result: ProduceResult
    ) -> None:
        replica = self._request.context.replicas.get(name, partition.index)
        if replica in self._replicas:
            raise BrokerError(ErrorCode.invalid_request, "the partition is in the request twice")
        self._replicas.add(replica)
        if partition.records is None:
            raise BrokerError(ErrorCode.invalid_record, "the partition has no record batch")
        info = replica.append(
            partition.records,
            self._now_ms,
            partial(self._on_held_append, replica, topic, partition, result),
            self._produce.acks,
            self._transaction,
            self._request.header.api_version >= FIRST_ZSTD_VERSION,
        )
        if replica.notes_writers:
            self._request.context.on_draining_write(self._request.session, replica.name)
        if info is None:
            self._held += 1
        else:
            self._on_append(replica, result, info)

    def _on_append(self, replica: Replica, result: ProduceResult, info: AppendInfo) -> None:
        result.base_offset = info.base_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        if not replica.when_acknowledged(info, self._produce.acks, partial(self._on_acknowledged, result)):
            self._waiting[result] = replica

    def _on_held_append(
        self,
        replica: Replica,
        topic: ProduceTopic,
        partition: ProducePartition,
        result: ProduceResult,
        outcome: AppendInfo | BrokerError,
    ) -> None:
        self._held -= 1
        try:
            if isinstance(outcome, BrokerError):
                raise outcome
            self._on_append(replica, result, outcome)
        except BrokerError as error:
            self._refuse_batch(topic, partition, result, error)
        if not self._held:
            assert self._later is not None
            if self._waiting:
                self._start_timer()
                self._later.lift_barrier()
            else:
                self._finish()

    def _on_acknowledged(self, result: ProduceResult, error: BrokerError | None) -> None:
        if result not in self._waiting:
            return
        del self._waiting[result]
        if error is not None:
            self._refuse(result, error)
        if not self._waiting and not self._held:
            self._finish()

    def _start_timer(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + max(self._produce.timeout_ms, 0) / 1000
        self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(min(self._deadline, loop.time() + DOUBT_SECONDS), self._look)

    def _look(self) -> None:
        if asyncio.get_running_loop().time() >= self._deadline:
            if self._produce.acks == ACKS_ALL:  # with acks=1 the append is enough
                for result in self._waiting:
                    self._refuse(result, not_committed_in_time())
            self._waiting.clear()
            self._finish()
        elif any(replica.is_in_doubt for replica in self._waiting.values()):
            assert self._later is not None
            self._waiting.clear()
            self._later.fail(CutOff())
        else:
            self._look_later()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._later is not None
        try:
            self._later.resolve(self._response())
        except ProtocolError as error:
            self._later.fail(error)

    def _response(self) -> Parts | None:
        for result in self._failed:
            self._request.context.metrics.produce_failed(ErrorCode(result.error_code))
        if self._produce.acks == ACKS_NONE:
            if self._failed:
                raise unanswerable(ErrorCode(self._failed[0].error_code))
            return None
        header = self._request.header
        return [encode_produce_response(header.correlation_id, header.api_version, self._topics)]

    def _refuse_batch(
        self, topic: ProduceTopic, partition: ProducePartition, result: ProduceResult, error: BrokerError
    ) -> None:
        """Refuse a batch. After a retriable error the producer's following batches are refused, too."""
        self._refuse(result, error)
        context, name, topic_id = self._request.context, topic.name, topic.topic_id
        remember_refusal(context, name, topic_id, partition.index, partition.records, error)

    def _refuse(self, result: ProduceResult, error: BrokerError) -> None:
        self._failed.append(result)
        result.refuse(error)


class _Transaction:
    """Transaction of one request, with which `Replica.append` asks the transaction coordinator."""

    __slots__ = ("_request", "_transactional_id")

    def __init__(self, request: Request, transactional_id: str) -> None:
        self._request = request
        self._transactional_id = transactional_id

    def vouches_for(self, partition: TopicPartition, header: BatchHeader) -> bool:
        return self._request.context.verifier.vouches_for(
            self._transactional_id,
            ProducerId(header.producer_id),
            ProducerEpoch(header.producer_epoch),
            partition,
        )

    async def verify(self, partition: TopicPartition, header: BatchHeader) -> ErrorCode:
        version = self._request.version
        code = await self._request.context.verifier.verify(
            self._transactional_id,
            ProducerId(header.producer_id),
            ProducerEpoch(header.producer_epoch),
            partition,
            version >= FIRST_IMPLICIT_VERSION,
        )
        return _produce_error(code, version)


def _produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """Produce error for an error of the transaction coordinator. Temporary errors become errors that the producer
    retries.
    """
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and version < FIRST_ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and version >= FIRST_IMPLICIT_VERSION:
        return code
    # Clients of every version retry NOT_ENOUGH_REPLICAS without a Metadata request.
    return ErrorCode.not_enough_replicas if code in _COORDINATOR_ERRORS else code


_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
