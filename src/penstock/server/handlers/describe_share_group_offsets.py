"""DescribeShareGroupOffsets: start offset and lag of the partitions of share groups (KIP-932, KIP-1226)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.share.group import ShareGroup
from penstock.model import NO_TOPIC_ID, ShareKey, TopicId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType
from penstock.server.share_offsets import UNKNOWN, share_offset


async def handle(request: Request, message: Any) -> Fields:
    groups = [await _group(request, asked) for asked in message.groups]
    return {"throttle_time": NO_TIME, "groups": groups}


API = Api(90, 0, 1, handle)


async def _group(request: Request, asked: Any) -> Fields:
    fields = {"group_id": asked.group_id, "error_code": ErrorCode.none, "error_message": None}
    try:
        group = shard_for(request, Operation.DESCRIBE, asked.group_id).share.existing(asked.group_id)
    except BrokerError as error:
        return {**fields, "topics": (), "error_code": error.code, "error_message": str(error)}
    if asked.topics is None:
        wanted = [
            (topic.name, topic_id, sorted(topic.partitions))
            for topic_id, topic in group.remembered.topics.initialized.items()
            if request.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        image = request.context.image
        wanted = [
            (topic.topic_name, known.id if known is not None else NO_TOPIC_ID, list(topic.partitions))
            for topic in asked.topics
            for known in [image.topic(topic.topic_name)]
        ]
    topics = [await _topic(request, group, *each) for each in wanted]
    return {**fields, "topics": topics}


async def _topic(
    request: Request, group: ShareGroup, name: str, topic_id: TopicId, partitions: Iterable[int]
) -> Fields:
    found = await asyncio.gather(
        *(_partition(request, group, name, topic_id, partition) for partition in partitions)
    )
    return {
        "topic_name": name,
        "topic_id": None if topic_id == NO_TOPIC_ID else topic_id,
        "partitions": found,
    }


async def _partition(
    request: Request, group: ShareGroup, name: str, topic_id: TopicId, partition: int
) -> Fields:
    fields = {
        "partition_index": partition,
        "start_offset": UNKNOWN,
        "leader_epoch": 0,
        "lag": UNKNOWN,
        "error_code": ErrorCode.none,
        "error_message": None,
    }
    try:
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        known = group.remembered.topics.initialized.get(topic_id)
        if known is None or partition not in known.partitions:
            return fields  # the group has not read the partition
        offset = await share_offset(request, ShareKey(group.group_id, topic_id, partition), name)
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error)}
    return {**fields, **offset._asdict()}
