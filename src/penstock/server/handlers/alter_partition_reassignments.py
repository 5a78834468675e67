"""AlterPartitionReassignments: reassign partitions to other brokers, or cancel a reassignment (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.cluster.partition_admin import ReassignmentRequest, check_named
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    may_change_count = getattr(message, "allow_replication_factor_change", True)
    try:
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        check_named(sum(len(topic.partitions) for topic in message.topics))
    except BrokerError as error:
        return _fields(may_change_count, error, _refused(message, error))
    wanted = [
        ReassignmentRequest(TopicPartition(topic.name, asked.partition_index), _target(asked.replicas))
        for topic in message.topics
        for asked in topic.partitions
    ]
    change = request.context.partition_admin.reassign(wanted, may_change_count=may_change_count)
    results = iter(await carried_out(request, change, len(wanted), message.timeout))
    responses = [
        {"name": topic.name, "partitions": [_partition(asked, next(results)) for asked in topic.partitions]}
        for topic in message.topics
    ]
    return _fields(may_change_count, None, responses)


API = Api(45, 0, 1, handle)


def _refused(message: Any, error: BrokerError) -> list[Fields]:
    """The error for each partition, which Kafka sends only to a client without the right; empty for other errors."""
    if error.code is not ErrorCode.cluster_authorization_failed:
        return []
    return [
        {"name": topic.name, "partitions": [_partition(asked, error) for asked in topic.partitions]}
        for topic in message.topics
    ]


def _target(replicas: tuple[int, ...] | None) -> tuple[BrokerId, ...] | None:
    return None if replicas is None else tuple(map(BrokerId, replicas))


def _partition(asked: Any, result: BrokerError | None) -> Fields:
    return {
        "partition_index": asked.partition_index,
        "error_code": code_of(result),
        "error_message": message_of(result),
    }


def _fields(may_change_count: bool, error: BrokerError | None, responses: Sequence[Fields]) -> Fields:
    return {
        "throttle_time": NO_TIME,
        "allow_replication_factor_change": may_change_count,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": message_of(error),
        "responses": responses,
    }
