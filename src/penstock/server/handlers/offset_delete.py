"""OffsetDelete: delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    try:
        shard = shard_for(request, Operation.DELETE, message.group_id)
        codes = {
            TopicPartition(topic.name, asked.partition_index): _check(
                request, topic.name, asked.partition_index
            )
            for topic in message.topics
            for asked in topic.partitions
        }
        wanted = [partition for partition, code in codes.items() if code is ErrorCode.none]
        codes |= await shard.delete_offsets(message.group_id, wanted)
    except BrokerError as error:
        return {"error_code": error.code, "throttle_time": NO_TIME, "topics": ()}
    return {"error_code": ErrorCode.none, "throttle_time": NO_TIME, "topics": _topics(message, codes)}


API = Api(47, 0, 0, handle)


def _check(request: Request, topic: str, index: int) -> ErrorCode:
    if not request.allowed(Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.topic_authorization_failed
    if request.context.image.partition(TopicPartition(request.context.source_of(topic), index)) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none


def _topics(message: Any, codes: Mapping[TopicPartition, ErrorCode]) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": asked.partition_index,
                    "error_code": codes[TopicPartition(topic.name, asked.partition_index)],
                }
                for asked in topic.partitions
            ],
        }
        for topic in message.topics
    ]
