"""DescribeTopicPartitions: topics page by page, so that the size of a response is bounded (KIP-966)."""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.cluster.internal_topics import is_internal
from penstock.cluster.topics import check_topic_name
from penstock.config import MAX_REQUEST_PARTITION_SIZE_LIMIT
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED
from penstock.server.handlers.partition_fields import partition_fields
from penstock.server.security import Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    image = request.context.image
    asked = {topic.name for topic in message.topics}
    first_name, first_partition = "", 0
    if message.cursor is not None:
        first_name, first_partition = message.cursor.topic_name, max(0, message.cursor.partition_index)
        if asked and first_name not in asked:
            refused = [_refused(name, ErrorCode.invalid_request) for name in sorted(asked)]
            return {"throttle_time": NO_TIME, "topics": refused, "next_cursor": None}
    limit = min(message.response_partition_limit, request.context.config[MAX_REQUEST_PARTITION_SIZE_LIMIT])
    left = max(1, limit)
    topics: list[Fields] = []
    next_cursor = None
    for name in _names(request, asked, first_name):
        topic = image.topic(name)
        topic = None if topic is None else image.shown(topic)
        is_allowed = request.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if not asked and not is_allowed:
            continue
        if left == 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        if topic is None or not is_allowed:
            topics.append(_refused(name, _why_not(request, name)))
            continue
        start = first_partition if name == first_name else 0
        end = min(len(topic.partitions), start + left)
        topics.append(_described(request, image, topic, range(start, end)))
        left -= max(0, end - start)
        if end < len(topic.partitions):
            next_cursor = {"topic_name": name, "partition_index": end}
            break
    return {"throttle_time": NO_TIME, "topics": topics, "next_cursor": next_cursor}


API = Api(75, 0, 0, handle)


def _names(request: Request, asked: set[str], first: str) -> list[str]:
    """Names of the requested topics in order, from `first` on. If `asked` is empty, all topics."""
    return sorted(name for name in (asked or request.context.image.topics) if name >= first)


def _why_not(request: Request, name: str) -> ErrorCode:
    try:
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        check_topic_name(name)
        return ErrorCode.unknown_topic_or_partition
    except BrokerError as error:
        return error.code


def _refused(name: str, code: ErrorCode) -> Fields:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": NOT_ASKED,
    }


def _described(request: Request, image: ClusterImage, topic: TopicImage, indexes: range) -> Fields:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": is_internal(topic.name),
        "partitions": [
            partition_fields(image, index, topic.partitions[index])
            | {"eligible_leader_replicas": (), "last_known_elr": ()}
            for index in indexes
        ],
        "topic_authorized_operations": request.authorized_operations(ResourceType.TOPIC, topic.name),
    }
