"""TxnOffsetCommit: offsets of a group that become committed with a transaction (KIP-98, KIP-447).

Up to version 4 the client adds the group's partition of `__consumer_offsets` to the transaction (AddOffsetsToTxn), and
the broker verifies this; from version 5 on the broker adds the partition. All valid offsets of a request are stored
together.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.cluster.image import TopicImage
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.config import OFFSET_METADATA_MAX_BYTES
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import NO_GENERATION, NO_MEMBER
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.groups.records import OffsetKey
from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType

NO_LEADER_EPOCH = -1
FIRST_ABORTABLE_VERSION = 4
FIRST_IMPLICIT_VERSION = 5


async def handle(request: Request, message: Any) -> Fields:
    offsets: dict[OffsetKey, CommittedOffset] = {}
    refusals: dict[TopicPartition, ErrorCode] = {}
    outcome = ErrorCode.none
    try:
        request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        shard = shard_for(request, Operation.READ, message.group_id)
        for topic in message.topics:
            _take(request, message.group_id, topic, offsets, refusals)
        if offsets:
            commit = OffsetCommit(
                message.group_id,
                getattr(message, "member_id", NO_MEMBER),
                getattr(message, "group_instance_id", None),
                getattr(message, "generation_id", NO_GENERATION),
                offsets,
            )
            producer = ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch)
            verify = partial(_verify, request, message.transactional_id, *producer, shard.partition)
            await shard.transactional.commit(commit, *producer, request.session.number, verify)
    except BrokerError as error:
        outcome = error.code
    return {
        "throttle_time": NO_TIME,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": refusals.get(
                            TopicPartition(topic.name, asked.partition_index), outcome
                        ),
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


API = Api(28, 0, 5, handle)


async def _verify(
    request: Request,
    transactional_id: str,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    partition: int,
) -> ErrorCode:
    is_implicit = request.version >= FIRST_IMPLICIT_VERSION
    code = await request.context.verifier.verify(
        transactional_id, producer_id, producer_epoch, TopicPartition(OFFSETS_TOPIC, partition), is_implicit
    )
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and request.version < FIRST_ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    # This broker coordinates the group, so the client gets an error after which it retries at the same broker.
    return ErrorCode.coordinator_load_in_progress if code in _NOT_NOW else code


_NOT_NOW = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def _take(
    request: Request,
    group_id: str,
    asked: Any,
    offsets: dict[OffsetKey, CommittedOffset],
    refusals: dict[TopicPartition, ErrorCode],
) -> None:
    """Add the valid offsets of a topic to `offsets`, and the errors of the other partitions to `refusals`."""
    allowed = request.allowed(Operation.READ, ResourceType.TOPIC, asked.name)
    image = request.context.image
    topic = image.topic(asked.name)
    topic = None if topic is None else image.shown(topic)
    for partition in asked.partitions:
        name = TopicPartition(asked.name, partition.partition_index)
        metadata = partition.committed_metadata or ""
        if not allowed:
            refusals[name] = ErrorCode.topic_authorization_failed
        elif topic is not None and topic.has_removed(name.partition):
            continue  # the offset is dropped, as OffsetCommit does
        elif topic is None or not _has(topic, name.partition):
            refusals[name] = ErrorCode.unknown_topic_or_partition
        elif len(metadata.encode()) > request.context.config[OFFSET_METADATA_MAX_BYTES]:
            refusals[name] = ErrorCode.offset_metadata_too_large
        else:
            leader_epoch = max(NO_LEADER_EPOCH, getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH))
            offsets[OffsetKey(group_id, asked.name, name.partition)] = CommittedOffset(
                partition.committed_offset, leader_epoch, metadata, topic.id, request.context.clock.now_ms()
            )


def _has(topic: TopicImage, partition: int) -> bool:
    return 0 <= partition < len(topic.partitions)
