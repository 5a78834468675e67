"""ShareGroupHeartbeat: a member joins a share group, receives its assignment, and leaves (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.cluster.dead_letter_topics import check_subscription
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import ShareHeartbeat, ShareHeartbeatResult
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import client_host, client_id, shard_for
from penstock.server.security import Operation, ResourceType
from penstock.server.share_acknowledging import MAX_MEMBER_ID_CHARACTERS

JOINS, LEAVES = 0, -1


async def handle(request: Request, message: Any) -> Fields:
    request.session.is_consumer = True
    try:
        shard = shard_for(request, Operation.READ, message.group_id, may_be_empty=True)
        _check(message)
        names = message.subscribed_topic_names
        for name in names or ():
            request.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        check_subscription(request.context.image, message.group_id, names or ())
        heartbeat = ShareHeartbeat(
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            rack_id=message.rack_id,
            client_id=client_id(request),
            client_host=client_host(request),
            subscribed_topics=None if names is None else frozenset(names),
        )
        result = await shard.share.heartbeat(message.group_id, heartbeat)
    except BrokerError as error:
        result = ShareHeartbeatResult(error.code, str(error))
    assignment = None
    if result.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in result.assignment.items()
            ]
        }
    return {
        "throttle_time": NO_TIME,
        "error_code": result.error,
        "error_message": result.error_message,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }


API = Api(76, 1, 1, handle)


def _check(message: Any) -> None:
    if not message.group_id:
        raise _invalid("the group id must not be empty")
    if not message.member_id or len(message.member_id) > MAX_MEMBER_ID_CHARACTERS:
        raise _invalid(f"the member id must have 1 to {MAX_MEMBER_ID_CHARACTERS} characters")
    if message.rack_id == "":
        raise _invalid("the rack id must not be empty")
    if message.member_epoch < LEAVES:
        raise _invalid(f"{message.member_epoch} is not a valid member epoch")
    if message.member_epoch == JOINS and not message.subscribed_topic_names:
        raise _invalid("a joining member must subscribe to topics")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, message)
