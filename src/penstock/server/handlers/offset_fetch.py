"""OffsetFetch: committed offsets of one group, or from version 8 on of several groups. From version 10 on, topics are
given by id.

A partition without a committed offset has -1, whether it exists or not. If a request for stable offsets names a
partition whose offset an open transaction may commit, that partition gets a retriable error (KIP-447). Such a request
is served only after this broker has confirmed that it is still the coordinator: a replaced coordinator could return old
offsets, and a transaction would consume records again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Container, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.offsets import CommittedOffset
from penstock.groups.shard import GroupShard
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for, topic_key
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_STABLE = 7
FIRST_VERSION_WITH_SEVERAL = 8
FIRST_VERSION_BY_ID = 10
_ELSEWHERE = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)


_Doubts: TypeAlias = Mapping[str, BrokerError | None]
"""Error for each group id whose coordinator may be another broker; None if this broker is the coordinator."""


class Asked(NamedTuple):
    """Topic in the request. Its name is None if no topic has the requested id."""

    name: str | None
    key: dict[str, Any]
    indexes: tuple[int, ...]


def handle(request: Request, message: Any) -> Fields | Awaitable[Fields]:
    if getattr(message, "require_stable", False):
        return _stable(request, message)
    return _fields(request, message)


API = Api(9, 1, 10, handle)


async def _stable(request: Request, message: Any) -> Fields:
    groups = message.groups if request.version >= FIRST_VERSION_WITH_SEVERAL else [message]
    ids = list({group.group_id for group in groups})
    confirmed = await asyncio.gather(*(_confirm(request, group_id) for group_id in ids))
    return _fields(request, message, dict(zip(ids, confirmed, strict=True)))


async def _confirm(request: Request, group_id: str) -> BrokerError | None:
    """Error if the coordinator of the group may be another broker; None if this broker is the coordinator."""
    try:
        confirmed = _shard(request, group_id).confirmed()
    except BrokerError as error:
        return error
    try:
        await confirmed
    except BrokerError as error:
        # The log cannot be written. Java's consumer throws an exception for any other error code in this case.
        return BrokerError(ErrorCode.not_coordinator, str(error))
    return None


def _shard(request: Request, group_id: str) -> GroupShard:
    return shard_for(request, Operation.DESCRIBE, group_id, may_be_empty=True)


def _fields(request: Request, message: Any, doubts: _Doubts | None = None) -> Fields:
    if request.version >= FIRST_VERSION_WITH_SEVERAL:
        counts = Counter(group.group_id for group in message.groups)
        groups = [
            {"group_id": group.group_id, **_group(request, group, counts[group.group_id], doubts)}
            for group in message.groups
        ]
        return {"throttle_time": NO_TIME, "groups": groups}
    return {"throttle_time": NO_TIME, **_group(request, message, 1, doubts)}


def _group(request: Request, asked: Any, times: int, doubts: _Doubts | None) -> Fields:
    topics = None if asked.topics is None else [_asked(request, topic) for topic in asked.topics]
    try:
        # A few bytes can request all offsets of a group, so a request may name each group only once.
        if times > 1:
            raise BrokerError(ErrorCode.invalid_request, "the group is in the request twice")
        if doubts is not None and (doubt := doubts[asked.group_id]) is not None:
            raise doubt
        shard = _shard(request, asked.group_id)
        found = _find(shard, asked, topics)
        unstable = set() if doubts is None else shard.offsets.unstable(asked.group_id)
    except BrokerError as error:
        if request.version < FIRST_VERSION_WITH_GROUP_ERROR:
            return {"topics": [_refused(topic, error.code) for topic in topics or ()]}
        return {"error_code": error.code, "topics": _to_repeat(request, topics or (), error)}
    if topics is None:
        topics = _all_topics(request, {**dict.fromkeys(unstable), **dict.fromkeys(found)})
    return {
        "error_code": ErrorCode.none,
        "topics": [_topic(request, topic, found, unstable) for topic in topics],
    }


def _to_repeat(request: Request, topics: Iterable[Asked], error: BrokerError) -> list[Fields]:
    """Partitions with UNSTABLE_OFFSET_COMMIT that are sent with a coordinator error of the group, for librdkafka.

    Kafka sends no partitions with such an error. librdkafka then finds the new coordinator but never fetches the
    offsets from it, so the consumer reads nothing as long as it stays in the group. With UNSTABLE_OFFSET_COMMIT in the
    partitions librdkafka repeats the request. Other clients check the error of the group first.
    """
    if error.code not in _ELSEWHERE or request.version < FIRST_VERSION_WITH_STABLE:
        return []
    return [_refused(topic, ErrorCode.unstable_offset_commit) for topic in topics]


def _find(
    shard: GroupShard, asked: Any, topics: list[Asked] | None
) -> Mapping[TopicPartition, CommittedOffset]:
    partitions = None
    if topics is not None:
        partitions = [
            TopicPartition(topic.name, index)
            for topic in topics
            if topic.name is not None
            for index in topic.indexes
        ]
    member_id, member_epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    return shard.fetch_offsets(asked.group_id, member_id, member_epoch, partitions)


def _asked(request: Request, topic: Any) -> Asked:
    if request.version < FIRST_VERSION_BY_ID:
        return Asked(topic.name, topic_key(topic), topic.partition_indexes)
    known = request.context.image.topic_by_id(topic.topic_id)
    return Asked(None if known is None else known.name, topic_key(topic), topic.partition_indexes)


def _all_topics(request: Request, found: Iterable[TopicPartition]) -> list[Asked]:
    """Topics of the found partitions that the client may describe. From version 10 on, deleted topics are left out
    because they have no id.
    """
    indexes: dict[str, list[int]] = {}
    for partition in found:
        indexes.setdefault(partition.topic, []).append(partition.partition)
    topics = []
    for name, partitions in indexes.items():
        key: dict[str, Any] = {"name": name}
        if request.version >= FIRST_VERSION_BY_ID:
            topic = request.context.image.topic(name)
            if topic is None:
                continue
            key = {"topic_id": topic.id}
        if request.shows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topics.append(Asked(name, key, tuple(partitions)))
    return topics


def _topic(
    request: Request,
    topic: Asked,
    found: Mapping[TopicPartition, CommittedOffset],
    unstable: Container[TopicPartition],
) -> Fields:
    if topic.name is None:
        return _refused(topic, ErrorCode.unknown_topic_id)
    if not request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return _refused(topic, ErrorCode.topic_authorization_failed)
    partitions = []
    for index in topic.indexes:
        partition = TopicPartition(topic.name, index)
        if partition in unstable:
            partitions.append(_partition(index, None, ErrorCode.unstable_offset_commit))
        else:
            partitions.append(_partition(index, found.get(partition)))
    return topic.key | {"partitions": partitions}


def _refused(topic: Asked, code: ErrorCode) -> Fields:
    return topic.key | {"partitions": [_partition(index, None, code) for index in topic.indexes]}


def _partition(index: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.none) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": code,
    }
