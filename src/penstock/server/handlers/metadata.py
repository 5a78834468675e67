"""Metadata: the brokers, and the leader of each partition. A missing topic may be created first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import replace
from typing import Any

from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionPhase, TopicImage
from penstock.cluster.internal_topics import is_internal, is_reserved
from penstock.cluster.topics import CreatableTopic, check_topic_name
from penstock.config import AUTO_CREATE_TOPICS_ENABLE
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.topic_routes import PARTITION_IS_GOING
from penstock.model import TopicId, TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.draining.draining import reads_phases
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED, carried_out
from penstock.server.handlers.create_topics import may_create
from penstock.server.handlers.describe_cluster import cluster_operations
from penstock.server.handlers.partition_fields import partition_fields
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_BY_ID = 12
NEWS_SECONDS = 0.005

_FINAL_CODES = frozenset({ErrorCode.invalid_replication_factor, ErrorCode.policy_violation})
"""Errors of an automatic topic creation that are sent to the client. Other errors become LEADER_NOT_AVAILABLE, after
which the client retries.
"""

Asked = dict[tuple[str | None, TopicId | None], None]
"""Names or ids of the requested topics, in order and without duplicates."""


def handle(request: Request, message: Any) -> Fields | Awaitable[Fields]:
    asked = _asked(request, message)
    missing = [name for name, _ in asked or () if name is not None and _must_create(request, message, name)]
    if missing:
        return _create_and_answer(request, message, asked, missing)
    if asked and len(request.context.image.brokers) > 1:
        return _answer_soon(request, message, asked)
    return _answer(request, message, asked, {})


API = Api(3, 0, 13, handle)


def _asked(request: Request, message: Any) -> Asked | None:
    """Names or ids of the requested topics; None if all topics were requested."""
    if message.topics is None or (request.version == 0 and not message.topics):
        return None
    return dict.fromkeys((topic.name, getattr(topic, "topic_id", None)) for topic in message.topics)


def _may_be_created(request: Request, message: Any) -> bool:
    return request.context.config[AUTO_CREATE_TOPICS_ENABLE] and getattr(
        message, "allow_auto_topic_creation", True
    )


def _must_create(request: Request, message: Any, name: str) -> bool:
    return (
        name not in request.context.image.topics
        and _may_be_created(request, message)
        and _is_name(name)
        and not is_reserved(name)
        and request.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        and may_create(request, name)
    )


def _is_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except BrokerError:
        return False
    return True


async def _answer_soon(request: Request, message: Any, asked: Asked) -> Fields:
    """Respond after `NEWS_SECONDS`, because a client may notice the failure of a leader before this broker does."""
    await asyncio.sleep(NEWS_SECONDS)
    return _answer(request, message, asked, {})


async def _create_and_answer(
    request: Request, message: Any, asked: Asked | None, missing: list[str]
) -> Fields:
    change = request.context.administration.create_topics([CreatableTopic(name) for name in missing])
    results = await carried_out(request, change, len(missing))
    refusals = {
        name: result.code
        for name, result in zip(missing, results, strict=True)
        if isinstance(result, BrokerError)
    }
    return _answer(request, message, asked, refusals)


def _answer(
    request: Request,
    message: Any,
    asked: Asked | None,
    refusals: Mapping[str, ErrorCode],
) -> Fields:
    image = request.context.image
    listener = request.session.listener
    brokers = image.brokers_at(listener)
    if asked is None:
        topics = [
            _topic_fields(request, message, image, topic)
            for topic in image.topics.values()
            if request.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        leaderless = _leaderless(request, asked)
        lost = request.context.lost_leaders.still_shown(request.session)
        brokers += [(each, address) for each in lost if (address := each.address_for(listener)) is not None]
        topics = [
            _look_up(request, message, name, topic_id, refusals, leaderless) for name, topic_id in asked
        ]
    wants_operations = getattr(message, "include_cluster_authorized_operations", False)
    return {
        "throttle_time": NO_TIME,
        "brokers": [
            {
                "node_id": broker.node_id,
                "host": address.host,
                "port": address.port,
                "rack": broker.rack,
            }
            for broker, address in brokers
        ],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(request) if wants_operations else NOT_ASKED,
        "error_code": ErrorCode.none,
    }


def _leaderless(request: Request, asked: Asked) -> Collection[TopicPartition]:
    image = request.context.image
    topics = (
        image.topic(name or "") if topic_id is None else image.topic_by_id(topic_id)
        for name, topic_id in asked
    )
    names = (topic.view_of or topic.name for topic in topics if topic is not None)
    return request.context.lost_leaders.leaderless(request.session, names)


def _look_up(
    request: Request,
    message: Any,
    name: str | None,
    topic_id: TopicId | None,
    refusals: Mapping[str, ErrorCode],
    leaderless: Collection[TopicPartition],
) -> Fields:
    image = request.context.image
    if request.version < FIRST_VERSION_BY_ID and (name is None or topic_id is not None):
        return _problem_fields(ErrorCode.invalid_request, name or "", topic_id)
    topic = image.topic(name or "") if topic_id is None else image.topic_by_id(topic_id)
    if topic is None and topic_id is not None:
        return _problem_fields(ErrorCode.unknown_topic_id, None, topic_id)
    known_as = topic.name if topic is not None else name or ""
    if not request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, known_as):
        # A client that may not describe the topic must not learn its name from its id.
        return _problem_fields(ErrorCode.topic_authorization_failed, None if topic_id else name, topic_id)
    if topic is not None:
        return _topic_fields(request, message, image, topic, leaderless)
    return _problem_fields(_why_missing(request, message, name or "", refusals), name or "", None)


def _why_missing(request: Request, message: Any, name: str, refusals: Mapping[str, ErrorCode]) -> ErrorCode:
    if not _is_name(name) or refusals.get(name) is ErrorCode.invalid_topic_exception:
        return ErrorCode.invalid_topic_exception
    if name in refusals:
        return refusals[name] if refusals[name] in _FINAL_CODES else ErrorCode.leader_not_available
    if _may_be_created(request, message) and not may_create(request, name):
        return ErrorCode.topic_authorization_failed
    return ErrorCode.unknown_topic_or_partition


def _topic_fields(
    request: Request,
    message: Any,
    image: ClusterImage,
    topic: TopicImage,
    leaderless: Collection[TopicPartition] = (),
) -> Fields:
    wants_operations = getattr(message, "include_topic_authorized_operations", False)
    stored_as = topic.view_of or topic.name
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": is_internal(topic.name),
        "partitions": _shown_partitions(
            request,
            image.shown(topic),
            [
                partition_fields(
                    image,
                    index,
                    replace(partition, leader=NO_LEADER)
                    if leaderless and TopicPartition(stored_as, index) in leaderless
                    else partition,
                )
                for index, partition in enumerate(image.shown(topic).partitions)
            ],
        ),
        "topic_authorized_operations": request.authorized_operations(ResourceType.TOPIC, topic.name)
        if wants_operations
        else NOT_ASKED,
    }


def _shown_partitions(request: Request, topic: TopicImage, partitions: list[Fields]) -> list[Fields]:
    """Partitions to show to the client. For a shrinking topic these are the partitions that the client may need
    (`Draining.shown_count`).
    """
    draining = request.context.draining
    if draining is None or not topic.is_shrinking:
        return partitions
    if not reads_phases(request.session):
        return partitions[: draining.shown_count(request.session, topic)]
    return [
        fields if state.phase is PartitionPhase.ACTIVE else {**fields, "error_code": PARTITION_IS_GOING}
        for fields, state in zip(partitions, topic.partitions, strict=True)
    ]


def _problem_fields(code: ErrorCode, name: str | None, topic_id: TopicId | None) -> Fields:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": NOT_ASKED,
    }
