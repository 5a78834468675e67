"""AlterShareGroupOffsets: resets the start offsets of a share group without members (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType

Place = tuple[TopicId, str, int]


async def handle(request: Request, message: Any) -> Fields:
    fields: dict[str, Any] = {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "error_message": None}
    outcomes: dict[tuple[str, int], BrokerError | None] = {}
    offsets: dict[Place, int] = {}
    for topic in message.topics:
        for asked in topic.partitions:
            try:
                offsets[_place(request, topic.topic_name, asked)] = asked.start_offset
            except BrokerError as error:
                outcomes[topic.topic_name, asked.partition_index] = error
    try:
        shard = shard_for(request, Operation.READ, message.group_id)
        if offsets:
            altered = await shard.share.alter_offsets(message.group_id, offsets)
            outcomes |= {(name, partition): error for (_, name, partition), error in altered.items()}
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error), "responses": ()}
    return {**fields, "responses": [_topic(request, topic, outcomes) for topic in message.topics]}


API = Api(91, 0, 0, handle)


def _place(request: Request, name: str, asked: Any) -> Place:
    request.require(Operation.READ, ResourceType.TOPIC, name)
    image = request.context.image
    topic = image.topic(name)
    if topic is None or not 0 <= asked.partition_index < len(image.shown(topic).partitions):
        raise BrokerError(
            ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{asked.partition_index}"
        )
    if asked.start_offset < 0:
        raise BrokerError(
            ErrorCode.invalid_request, f"start offset {asked.start_offset} is negative; give 0 or more"
        )
    return topic.id, name, asked.partition_index


def _topic(request: Request, asked: Any, outcomes: dict[tuple[str, int], BrokerError | None]) -> Fields:
    known = request.context.image.topic(asked.topic_name)
    partitions = []
    for partition in asked.partitions:
        error = outcomes.get((asked.topic_name, partition.partition_index))
        partitions.append(
            {
                "partition_index": partition.partition_index,
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else str(error),
            }
        )
    return {
        "topic_name": asked.topic_name,
        "topic_id": None if known is None else known.id,
        "partitions": partitions,
    }
