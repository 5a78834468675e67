"""AddPartitionsToTxn: add partitions to a transaction before records are written to them.

Up to version 3 the request comes from a client and has one transaction, with all of its partitions or
none. From version 4 on it comes from partition leaders and has many transactions: a leader adds a
partition for a client that leaves it to the leader, or only verifies that the partition is in the
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cluster.internal_topics import is_internal
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.transaction_requests import producer_of, shard_for, told
from penstock.server.security import Operation, ResourceType
from penstock.transactions.transaction import VERSION_1, VERSION_2, Identity

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4

Codes = Mapping[TopicPartition, ErrorCode]


async def handle(request: Request, message: Any) -> Fields:
    if request.version >= FIRST_VERSION_OF_BROKERS:
        return await _from_broker(request, message)
    transactional_id = message.v3_and_below_transactional_id
    producer = Identity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    partitions = _partitions(message.v3_and_below_topics)
    codes = await _add(request, transactional_id, producer, partitions)
    return {"throttle_time": NO_TIME, "results_by_topic_v3_and_below": _topics(codes)}


API = Api(24, 0, 5, handle)


async def _add(
    request: Request, transactional_id: str, producer: Identity, partitions: list[TopicPartition]
) -> Codes:
    try:
        shard = shard_for(request, Operation.WRITE, transactional_id)
        shard.check_connection(transactional_id, producer, request.session.number)
        refused = _refused(request, partitions)
        if refused:
            return {
                partition: refused.get(partition, ErrorCode.operation_not_attempted)
                for partition in partitions
            }
        await shard.add_partitions(transactional_id, producer, partitions, VERSION_1)
    except BrokerError as error:
        return dict.fromkeys(partitions, told(error.code, request.version, FIRST_VERSION_WITH_FENCED))
    return dict.fromkeys(partitions, ErrorCode.none)


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
            # The other transactions of the request do not wait until the previous transaction of this id has
            # ended.
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
