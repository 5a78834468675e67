"""OffsetCommit: committed offsets of a group. Topics are named by id from version 10 on.

All offsets of a request that may be committed are committed together; the others are refused partition by
partition.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.cluster.image import TopicImage
from penstock.config import OFFSET_METADATA_MAX_BYTES
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.model import TopicPartition
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.server.dispatch import Api, Request
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType
from penstock.wire.offset_commit import (
    NO_LEADER_EPOCH,
    CommitTopic,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

FIRST_VERSION_WITH_MEMBER_EPOCH = 9

Refusals = list[list[ErrorCode | None]]
"""Error of each partition of each topic; None where the outcome of the commit counts."""


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_offset_commit_request(frame, position, request.header.api_version)
    try:
        shard = shard_for(request, Operation.READ, asked.group_id, may_be_empty=True)
    except BrokerError as error:
        return _answer(request, asked, [[error.code] * len(topic.partitions) for topic in asked.topics])
    offsets: dict[TopicPartition, CommittedOffset] = {}
    refusals = [_take(request, topic, offsets) for topic in asked.topics]
    if not offsets:
        return _answer(request, asked, refusals)
    wanted = OffsetCommit(asked.member_id, asked.instance_id, asked.generation, offsets)
    later = PendingResponse(barrier=True)
    committing = shard.commit(asked.group_id, wanted)
    committing.add_done_callback(partial(_finish, request, asked, refusals, later))
    return later


API = Api(8, 2, 10, handle_raw=handle)


def _finish(
    request: Request,
    asked: OffsetCommitRequest,
    refusals: Refusals,
    later: PendingResponse,
    committing: asyncio.Future[None],
) -> None:
    error = committing.exception()
    assert error is None or isinstance(error, BrokerError), error
    later.resolve(_answer(request, asked, refusals, ErrorCode.none if error is None else error.code))


def _take(
    request: Request, asked: CommitTopic, offsets: dict[TopicPartition, CommittedOffset]
) -> list[ErrorCode | None]:
    """Add to `offsets` the offsets of a topic that may be committed; the errors of the others."""
    try:
        topic = _topic(request, asked)
    except BrokerError as error:
        return [error.code] * len(asked.partitions)
    max_bytes, now_ms = request.context.config[OFFSET_METADATA_MAX_BYTES], request.context.clock.now_ms()
    refusals: list[ErrorCode | None] = []
    for partition in asked.partitions:
        metadata = partition.metadata or ""
        if not 0 <= partition.partition < len(topic.partitions):
            refusals.append(ErrorCode.unknown_topic_or_partition)
        elif len(metadata.encode()) > max_bytes:
            refusals.append(ErrorCode.offset_metadata_too_large)
        else:
            leader_epoch = max(NO_LEADER_EPOCH, partition.leader_epoch)
            offsets[TopicPartition(topic.name, partition.partition)] = CommittedOffset(
                partition.offset, leader_epoch, metadata, topic.id, now_ms
            )
            refusals.append(None)
    return refusals


def _topic(request: Request, asked: CommitTopic) -> TopicImage:
    image = request.context.image
    if asked.name is None:
        assert asked.topic_id is not None
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


def _answer(
    request: Request, asked: OffsetCommitRequest, refusals: Refusals, outcome: ErrorCode = ErrorCode.none
) -> Parts:
    version = request.header.api_version
    if outcome is ErrorCode.stale_member_epoch and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        # Older versions have no member epochs, and no error for a wrong one.
        outcome = ErrorCode.unsupported_version
    codes = [[outcome if code is None else code for code in of_topic] for of_topic in refusals]
    return [encode_offset_commit_response(request.header.correlation_id, version, asked.topics, codes)]
