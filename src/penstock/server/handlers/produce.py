"""Produce: append batches as they came, and answer when they are as safe as the producer asked.

With acks=1 the answer waits for the high watermark too where the partition has one replica: the producer then reads
what it wrote, as on Kafka, where the high watermark of such a partition moves with the append.

The append is decided before the next request of the connection is looked at; only the wait for the commit overlaps.
No code path answers UNKNOWN_SERVER_ERROR: clients treat it in ways that make duplicates.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.cluster.internal_topics import refuse_internal
from penstock.errors import BrokerError, CutOff, ErrorCode, InvalidBatch, ProtocolError
from penstock.model import ProducerEpoch, ProducerId
from penstock.net.answer import Answer, Later, Parts
from penstock.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from penstock.records.compression import Codec
from penstock.records.validation import check_batch
from penstock.replication.replica import Replica
from penstock.server.dispatch import Api, Request
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

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
FIRST_RECORD_BATCH_VERSION = 3
FIRST_ZSTD_VERSION = 7
FIRST_ABORTABLE_VERSION = 11
FIRST_IMPLICIT_VERSION = 12
"""From here on the client leaves it to the partition's leader to put the partition into the transaction."""
DOUBT_SECONDS = 2.0
"""So long a producer waits at least before it is sent away from a broker that may not lead any more."""


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    produce = decode_produce_request(frame, position, request.header.api_version)
    operation = _ProduceOperation(request, produce)
    operation.run()
    return operation.answer()


API = Api(0, 0, 13, handle_raw=handle)


class _ProduceOperation:
    """One Produce request on its way: appended, perhaps held, perhaps waiting to be committed, then answered."""

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
        self._later: Later | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

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
        self._later = Later(barrier=self._held > 0)
        if not self._held:
            self._start_timer()
        return self._later

    def _check_topic(self, topic: ProduceTopic) -> str:
        """The topic's name, if this request may write to it."""
        produce, version = self._produce, self._request.header.api_version
        if produce.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise BrokerError(ErrorCode.invalid_required_acks, f"acks={produce.acks}: give 0, 1 or -1 (all)")
        if version < FIRST_RECORD_BATCH_VERSION:
            raise BrokerError(
                ErrorCode.unsupported_for_message_format,
                "message formats before record batches (v2) are not taken",
            )
        if produce.transactional_id is not None:
            if produce.acks != ACKS_ALL:
                raise BrokerError(ErrorCode.invalid_required_acks, "a transaction needs acks=all")
            self._request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, produce.transactional_id)
        name = topic.name
        if name is None:
            assert topic.topic_id is not None
            known = self._request.context.image.topic_by_id(topic.topic_id)
            if known is None:
                raise BrokerError(ErrorCode.unknown_topic_id)
            name = known.name
        self._request.require(Operation.WRITE, ResourceType.TOPIC, name)
        refuse_internal(name)
        return name

    def _append(
        self, name: str, topic: ProduceTopic, partition: ProducePartition, result: ProduceResult
    ) -> None:
        replica = self._request.context.replicas.get(name, partition.index)
        if replica in self._replicas:
            raise BrokerError(ErrorCode.invalid_request, "the partition is in the request twice")
        self._replicas.add(replica)
        if partition.records is None:
            raise BrokerError(ErrorCode.invalid_record, "a batch is missing")
        header = check_batch(partition.records, max_bytes=replica.max_message_bytes)
        self._check_batch(header)
        if replica.keyed is not None:
            replica.keyed.check_size(header)
        if self._lacks_replicas(replica):
            raise BrokerError(
                ErrorCode.not_enough_replicas, "fewer replicas are in sync than min.insync.replicas"
            )
        if (
            header.attributes & TRANSACTIONAL_FLAG
            and replica.verified.must_hold(header)
            and not self._is_vouched_for(replica, header)
        ):
            self._held += 1
            callback = partial(self._on_held_append, replica, topic, partition, result)
            verify = partial(self._verify, replica, header)
            replica.append_verified(partition.records, header, self._now_ms, verify, callback)
        elif replica.must_hold or replica.keyed is not None:
            self._append_later(replica, header, topic, partition, result)
        else:
            self._on_append(replica, result, replica.append(partition.records, header, self._now_ms))

    def _append_later(
        self,
        replica: Replica,
        header: BatchHeader,
        topic: ProduceTopic,
        partition: ProducePartition,
        result: ProduceResult,
    ) -> None:
        records = partition.records
        assert records is not None, "checked before"
        may_be_stored = replica.must_check(records, header)
        if may_be_stored or replica.must_hold:
            self._held += 1
            callback = partial(self._on_held_append, replica, topic, partition, result)
            replica.append_later(records, header, self._now_ms, callback, may_be_stored=may_be_stored)
        else:
            self._on_append(replica, result, replica.append(records, header, self._now_ms))

    def _check_batch(self, header: BatchHeader) -> None:
        if bool(header.attributes & TRANSACTIONAL_FLAG) is (self._produce.transactional_id is None):
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                "batches of transactions come with their transactional id, no others do",
            )
        if header.codec == Codec.ZSTD and self._request.header.api_version < FIRST_ZSTD_VERSION:
            raise BrokerError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")

    def _is_vouched_for(self, replica: Replica, header: BatchHeader) -> bool:
        transactional_id = self._produce.transactional_id
        assert transactional_id is not None, "checked with the batch"
        return self._request.context.verifier.vouches_for(
            transactional_id,
            ProducerId(header.producer_id),
            ProducerEpoch(header.producer_epoch),
            replica.name,
        ) and replica.verified.vouch(header)

    async def _verify(self, replica: Replica, header: BatchHeader) -> ErrorCode:
        transactional_id = self._produce.transactional_id
        assert transactional_id is not None, "checked with the batch"
        code = await self._request.context.verifier.verify(
            transactional_id,
            ProducerId(header.producer_id),
            ProducerEpoch(header.producer_epoch),
            replica.name,
            self._request.version >= FIRST_IMPLICIT_VERSION,
        )
        return _told(code, self._request.version)

    def _on_append(self, replica: Replica, result: ProduceResult, info: AppendInfo) -> None:
        result.base_offset = info.base_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        if self._produce.acks == ACKS_ALL or (self._produce.acks == ACKS_LEADER and replica.is_only_replica):
            done = partial(self._on_commit, replica, result)
            if not replica.when_committed(info, done, for_producer=True):
                self._waiting[result] = replica
            elif self._lacks_replicas(replica):
                raise _too_few_after_append()

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

    def _on_commit(self, replica: Replica, result: ProduceResult, error: BrokerError | None) -> None:
        if result not in self._waiting:
            return
        del self._waiting[result]
        if error is None and self._lacks_replicas(replica):
            error = _too_few_after_append()
        if error is not None:
            self._refuse(result, error)
        if not self._waiting and not self._held:
            self._finish()

    def _lacks_replicas(self, replica: Replica) -> bool:
        """Whether fewer replicas are in sync than the producer asked for; min.insync.replicas is for acks=all alone."""
        return self._produce.acks == ACKS_ALL and replica.lacks_replicas

    def _start_timer(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + max(self._produce.timeout_ms, 0) / 1000
        self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(min(self._deadline, loop.time() + DOUBT_SECONDS), self._look)

    def _look(self) -> None:
        if asyncio.get_running_loop().time() >= self._deadline:
            if self._produce.acks == ACKS_ALL:  # with acks=1 the producer asked for no more than the append
                for result in self._waiting:
                    self._refuse(
                        result,
                        BrokerError(ErrorCode.request_timed_out, "stored, but not known to be safe in time"),
                    )
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
                # Without an answer to put it in, a lost connection makes the producer look again, as with Kafka.
                raise ProtocolError(
                    f"produce with acks=0 was refused: {ErrorCode(self._failed[0].error_code).name}"
                )
            return None
        header = self._request.header
        return [encode_produce_response(header.correlation_id, header.api_version, self._topics)]

    def _refuse_batch(
        self, topic: ProduceTopic, partition: ProducePartition, result: ProduceResult, error: BrokerError
    ) -> None:
        """Refuse a batch that was not stored; where its producer sends it again, the batches behind it have to wait."""
        self._refuse(result, error)
        records = partition.records
        if (
            error.code.retriable
            and error.code is not ErrorCode.not_enough_replicas_after_append
            and records is not None
            and len(records) >= HEADER_SIZE
            and records[MAGIC_POSITION] == MAGIC
        ):
            key = topic.topic_id if topic.name is None else topic.name
            assert key is not None, "a topic has a name or an id"
            self._request.context.replicas.refused.remember(
                (key, partition.index), read_header(records), error.code
            )

    def _refuse(self, result: ProduceResult, error: BrokerError) -> None:
        self._failed.append(result)
        result.error_code = error.code
        result.error_message = str(error)
        if isinstance(error, InvalidBatch):
            result.invalid_records = error.records
        result.base_offset = -1
        result.log_append_time_ms = -1


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told that the coordinator of its transaction said: codes of Produce, which make it try again
    where that helps."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and version < FIRST_ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and version >= FIRST_IMPLICIT_VERSION:
        return code
    # This one is tried again without a look at the metadata, by clients of any age.
    return ErrorCode.not_enough_replicas if code in _NOT_NOW else code


_NOT_NOW = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def _too_few_after_append() -> BrokerError:
    return BrokerError(
        ErrorCode.not_enough_replicas_after_append,
        "stored, but fewer replicas are in sync than min.insync.replicas",
    )
