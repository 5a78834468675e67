"""ConsumerGroupHeartbeat: a member joins a consumer group, reports its partitions, receives its assignment, and leaves
(KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.cluster.topics import draw_uuid
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import ConsumerHeartbeat, ConsumerHeartbeatResult
from penstock.groups.records import Assignment
from penstock.model import NO_TOPIC_ID, TopicId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import MILLISECOND, client_host, client_id, shard_for
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_WITH_REGEX = 1
"""First version with subscriptions by regex, in which the member generates its own member id."""
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
AS_BEFORE_MS = -1


async def handle(request: Request, message: Any) -> Fields:
    request.session.is_consumer = True
    try:
        shard = shard_for(request, Operation.READ, message.group_id, may_be_empty=True)
        _check(request, message)
        _check_topics(request, message.subscribed_topic_names)
        result = await shard.consumer_heartbeat(message.group_id, _heartbeat(request, message))
    except BrokerError as error:
        result = ConsumerHeartbeatResult(error.code, str(error))
    assignment = None
    if result.assignment is not None:
        assignment = {"topic_partitions": list(_partition_fields(result.assignment))}
    return {
        "throttle_time": NO_TIME,
        "error_code": result.error,
        "error_message": result.error_message,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }


API = Api(68, 0, 1, handle)


def _check(request: Request, message: Any) -> None:
    epoch = message.member_epoch
    if not message.group_id:
        raise _invalid("the group id must not be empty")
    if not message.member_id and (request.version >= FIRST_VERSION_WITH_REGEX or epoch != JOINS):
        raise _invalid("the member id must not be empty")
    if message.instance_id == "":
        raise _invalid("the instance id must not be empty")
    if message.rack_id == "":
        raise _invalid("the rack id must not be empty")
    if epoch < LEAVES_FOR_A_WHILE:
        raise _invalid(f"{epoch} is not a valid member epoch")
    if epoch == LEAVES_FOR_A_WHILE and message.instance_id is None:
        raise _invalid("only a static member may leave temporarily (member epoch -2); set an instance id")
    if epoch == JOINS:
        _check_joining(message)


def _check_joining(message: Any) -> None:
    if message.rebalance_timeout // MILLISECOND == AS_BEFORE_MS:
        raise _invalid("a joining member must send its rebalance timeout")
    if message.topic_partitions is None or message.topic_partitions:
        raise _invalid("a joining member must send an empty list of owned partitions")
    if message.subscribed_topic_names is None and _regex(message) is None:
        raise _invalid("a joining member must subscribe to topics, by name or by regex")


def _check_topics(request: Request, names: Iterable[str] | None) -> None:
    for name in names or ():
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _heartbeat(request: Request, message: Any) -> ConsumerHeartbeat:
    names, owned = message.subscribed_topic_names, message.topic_partitions
    return ConsumerHeartbeat(
        member_id=message.member_id or str(draw_uuid(request.context.random)),
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        client_id=client_id(request),
        client_host=client_host(request),
        rebalance_timeout_ms=message.rebalance_timeout // MILLISECOND,
        subscribed_topics=None if names is None else frozenset(names),
        subscribed_regex=_regex(message),
        server_assignor=message.server_assignor,
        owned=None if owned is None else _owned(owned),
    )


def _regex(message: Any) -> str | None:
    regex: str | None = getattr(message, "subscribed_topic_regex", None)
    return regex


def _owned(topics: Iterable[Any]) -> Assignment:
    owned: Assignment = {}
    for topic in topics:
        if topic.partitions:
            topic_id = NO_TOPIC_ID if topic.topic_id is None else TopicId(topic.topic_id)
            owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _partition_fields(assignment: Assignment) -> Iterable[Fields]:
    for topic_id, partitions in assignment.items():
        yield {"topic_id": topic_id, "partitions": sorted(partitions)}


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, message)
