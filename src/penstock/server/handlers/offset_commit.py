"""OffsetCommit: how far a group has read. Topics are named by id from version 10 on.

What may be committed of a request is committed together; the rest is refused partition by partition.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import Topic
from penstock.config import OFFSET_METADATA_MAX_BYTES
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for, topic_key
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_WITH_MEMBER_EPOCH = 9
FIRST_VERSION_BY_ID = 10
NO_LEADER_EPOCH = -1

Refusals = list[list[ErrorCode | None]]
"""Of each partition in each topic of the request; None where the outcome of the commit counts."""


async def handle(request: Request, message: Any) -> Fields:
    try:
        shard = shard_for(request, Operation.READ, message.group_id, may_be_empty=True)
    except BrokerError as error:
        return _fields(message, [[error.code] * len(asked.partitions) for asked in message.topics])
    offsets: dict[TopicPartition, CommittedOffset] = {}
    refusals = [_take(request, asked, offsets) for asked in message.topics]
    outcome = ErrorCode.none
    if offsets:
        try:
            await shard.commit(message.group_id, _commit(message, offsets))
        except BrokerError as error:
            outcome = _told(request, error.code)
    return _fields(message, refusals, outcome)


API = Api(8, 2, 10, handle)


def _take(
    request: Request, asked: Any, offsets: dict[TopicPartition, CommittedOffset]
) -> list[ErrorCode | None]:
    """Add to `offsets` what may be committed of a topic, and say what may not."""
    try:
        topic = _topic(request, asked)
    except BrokerError as error:
        return [error.code] * len(asked.partitions)
    max_bytes = request.broker.config[OFFSET_METADATA_MAX_BYTES]
    refusals: list[ErrorCode | None] = []
    for partition in asked.partitions:
        metadata = partition.committed_metadata or ""
        if not 0 <= partition.partition_index < len(topic.partitions):
            refusals.append(ErrorCode.unknown_topic_or_partition)
        elif len(metadata.encode()) > max_bytes:
            refusals.append(ErrorCode.offset_metadata_too_large)
        else:
            leader_epoch = max(NO_LEADER_EPOCH, getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH))
            offsets[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, topic.id
            )
            refusals.append(None)
    return refusals


def _topic(request: Request, asked: Any) -> Topic:
    image = request.broker.image
    if request.version >= FIRST_VERSION_BY_ID:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        request.require(Operation.READ, ResourceType.TOPIC, topic.name)
        return topic
    request.require(Operation.READ, ResourceType.TOPIC, asked.name)
    topic = image.topic(asked.name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    return topic


def _commit(message: Any, offsets: dict[TopicPartition, CommittedOffset]) -> OffsetCommit:
    return OffsetCommit(
        member_id=message.member_id,
        instance_id=getattr(message, "group_instance_id", None),
        generation=message.generation_id_or_member_epoch,
        offsets=offsets,
    )


def _told(request: Request, code: ErrorCode) -> ErrorCode:
    """Older versions have no member epochs, and no word for a wrong one."""
    if code is ErrorCode.stale_member_epoch and request.version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        return ErrorCode.unsupported_version
    return code


def _fields(message: Any, refusals: Refusals, outcome: ErrorCode = ErrorCode.none) -> Fields:
    topics = [
        topic_key(asked)
        | {
            "partitions": [
                {
                    "partition_index": partition.partition_index,
                    "error_code": outcome if code is None else code,
                }
                for partition, code in zip(asked.partitions, codes, strict=True)
            ]
        }
        for asked, codes in zip(message.topics, refusals, strict=True)
    ]
    return {"throttle_time": NO_TIME, "topics": topics}
