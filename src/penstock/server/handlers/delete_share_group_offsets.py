"""DeleteShareGroupOffsets: deletes the share states of topics, for a share group without members (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    fields: dict[str, Any] = {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "error_message": None}
    try:
        shard = shard_for(request, Operation.DELETE, message.group_id)
        group = shard.share.existing(message.group_id)
        if not group.is_empty:
            raise BrokerError(ErrorCode.non_empty_group, "the group has members; stop them first")
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error), "responses": ()}
    responses = []
    for asked in message.topics:
        name, code, reason = asked.topic_name, ErrorCode.none, None
        topic = request.context.image.topic(name)
        try:
            request.require(Operation.READ, ResourceType.TOPIC, name)
            if topic is None:
                raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
            if topic.id not in group.remembered.topics.initialized:
                raise BrokerError(ErrorCode.unknown_topic_or_partition, f"the group has not read {name}")
            async with shard.share.changing(group):
                await shard.share.delete_states(group, [topic.id])
        except BrokerError as error:
            code, reason = error.code, str(error)
        responses.append(
            {
                "topic_name": name,
                "topic_id": None if topic is None else topic.id,
                "error_code": code,
                "error_message": reason,
            }
        )
    return {**fields, "responses": responses}


API = Api(92, 0, 0, handle)
