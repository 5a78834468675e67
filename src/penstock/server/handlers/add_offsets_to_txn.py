"""AddOffsetsToTxn: add the offsets partition of a group to a transaction."""

from __future__ import annotations

from typing import Any

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.transaction_requests import producer_of, shard_for, told
from penstock.server.security import Operation, ResourceType
from penstock.state_log.partitioning import partition_of
from penstock.transactions.transaction import VERSION_1

FIRST_VERSION_WITH_FENCED = 2


async def handle(request: Request, message: Any) -> Fields:
    code = ErrorCode.none
    try:
        await _add(request, message)
    except BrokerError as error:
        code = told(error.code, request.version, FIRST_VERSION_WITH_FENCED)
    return {"throttle_time": NO_TIME, "error_code": code}


API = Api(25, 0, 4, handle)


async def _add(request: Request, message: Any) -> None:
    # Kafka checks the transactional id before the group.
    shard = shard_for(request, Operation.WRITE, message.transactional_id)
    request.require(Operation.READ, ResourceType.GROUP, message.group_id)
    if not message.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id must not be empty")
    await request.context.groups.find(
        message.group_id
    )  # the group may have no offsets yet, and the cluster no topic for them
    topic = request.context.image.topics[OFFSETS_TOPIC]
    partition = TopicPartition(OFFSETS_TOPIC, partition_of(message.group_id, len(topic.partitions)))
    producer = producer_of(message)
    shard.check_connection(message.transactional_id, producer, request.session.number)
    await shard.add_partitions(message.transactional_id, producer, [partition], VERSION_1)
