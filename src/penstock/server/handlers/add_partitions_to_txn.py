"""AddPartitionsToTxn: add partitions to a transaction before records are written to them.

Up to version 3 the request comes from a client and has one transaction: either all of its partitions are added or none.
From version 4 on it comes from partition leaders and has many transactions: a leader adds a partition on behalf of a
client that does not send AddPartitionsToTxn itself (KIP-890), or only verifies that the partition is in the
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from penstock.cluster.internal_topics import is_internal
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.net.response import Parts, PendingResponse
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.settled_response import SettledResponse
from penstock.server.handlers.transaction_requests import producer_of, shard_for, told
from penstock.server.security import Operation, ResourceType
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import VERSION_1, VERSION_2
from penstock.wire.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    FIRST_VERSION_OF_BROKERS,
    AddPartitionsRequest,
    decode_add_partitions,
    encode_add_partitions_response,
)
from penstock.wire.messages import decode_request

FIRST_VERSION_WITH_FENCED = 2

Codes = Mapping[TopicPartition, ErrorCode]


def decode(frame: memoryview, position: int, version: int) -> Any:
    if version >= FIRST_VERSION_OF_BROKERS:
        return decode_request(ADD_PARTITIONS_TO_TXN, version, frame, position)
    return decode_add_partitions(frame, position, version)


def handle(request: Request, message: Any) -> Parts | PendingResponse | Awaitable[Fields]:
    if request.version >= FIRST_VERSION_OF_BROKERS:
        return _from_broker(request, message)
    return _from_client(request, message)


API = Api(ADD_PARTITIONS_TO_TXN, 0, 5, handle, decode=decode)


def _from_client(
    request: Request, asked: AddPartitionsRequest
) -> Parts | PendingResponse | Awaitable[Fields]:
    transactional_id, producer = asked.transactional_id, producer_of(asked)
    response = _Response(request, asked.partitions)
    try:
        shard = shard_for(request, Operation.WRITE, transactional_id)
        shard.check_connection(transactional_id, producer, request.session.number)
    except BrokerError as error:
        return [response.encode(error.code)]
    refused = _refused(request, asked.partitions)
    if refused:
        return [_encode(request, _with_others(refused, asked.partitions))]
    decided = shard.plain_addition(transactional_id, producer, asked.partitions, VERSION_1)
    if decided is None:
        return _add(request, shard, asked)
    shard.record(transactional_id, decided, response)
    return response.answer


class _Response(SettledResponse):
    __slots__ = ("_partitions", "_request")

    def __init__(self, request: Request, partitions: list[TopicPartition]) -> None:
        super().__init__()
        self._request = request
        self._partitions = partitions

    def encode(self, outcome: ErrorCode) -> bytes:
        code = told(outcome, self._request.version, FIRST_VERSION_WITH_FENCED)
        return _encode(self._request, dict.fromkeys(self._partitions, code))


def _encode(request: Request, codes: Codes) -> bytes:
    return encode_add_partitions_response(request.header.correlation_id, request.version, codes)


def _with_others(refused: Codes, partitions: Iterable[TopicPartition]) -> Codes:
    """Error codes of all partitions if one is refused: the others get OPERATION_NOT_ATTEMPTED."""
    return {partition: refused.get(partition, ErrorCode.operation_not_attempted) for partition in partitions}


async def _add(request: Request, shard: TransactionShard, asked: AddPartitionsRequest) -> Fields:
    """Add the partitions, after the previous transaction has ended, or respond with the coordinator's error."""
    code = ErrorCode.none
    try:
        producer = producer_of(asked)
        await shard.add_partitions(asked.transactional_id, producer, asked.partitions, VERSION_1)
    except BrokerError as error:
        code = told(error.code, request.version, FIRST_VERSION_WITH_FENCED)
    codes = dict.fromkeys(asked.partitions, code)
    return {"throttle_time": NO_TIME, "results_by_topic_v3_and_below": _topics(codes)}


def _refused(request: Request, partitions: Iterable[TopicPartition]) -> Codes:
    refused = {}
    for partition in partitions:
        if is_internal(partition.topic) or not request.allowed(
            Operation.WRITE, ResourceType.TOPIC, partition.topic
        ):
            refused[partition] = ErrorCode.topic_authorization_failed
        elif request.context.image.partition(partition) is None:
            refused[partition] = ErrorCode.unknown_topic_or_partition
    return refused


async def _from_broker(request: Request, message: Any) -> Fields:
    if request.session.broker_id is None:
        code = ErrorCode.cluster_authorization_failed
        return {"throttle_time": NO_TIME, "error_code": code, "results_by_transaction": ()}
    results = await asyncio.gather(*(_of_transaction(request, asked) for asked in message.transactions))
    return {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "results_by_transaction": results}


async def _of_transaction(request: Request, asked: Any) -> Fields:
    transactional_id, producer = asked.transactional_id, producer_of(asked)
    partitions = _partitions(asked.topics)
    codes: Codes
    try:
        shard = request.context.transactions.shard_of(transactional_id)
        if asked.verify_only:
            codes = await shard.verify(transactional_id, producer, partitions)
        else:
            # Do not wait for the end of the previous transaction of this id: the other transactions of the
            # request would wait, too.
            await shard.add_partitions(transactional_id, producer, partitions, VERSION_2, may_wait=False)
            codes = dict.fromkeys(partitions, ErrorCode.none)
    except BrokerError as error:
        codes = dict.fromkeys(partitions, error.code)
    return {"transactional_id": transactional_id, "topic_results": _topics(codes)}


def _partitions(topics: Any) -> list[TopicPartition]:
    named = (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    return list(dict.fromkeys(named))


def _topics(codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for partition, code in codes.items():
        result = {"partition_index": partition.partition, "partition_error_code": code}
        topics.setdefault(partition.topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]
