"""JoinGroup: a member of a classic group joins with its subscription, and waits for the other members."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError
from penstock.groups.group import JoinRequest, JoinResult
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import (
    MILLISECOND,
    client_host,
    client_id,
    draw_member_id,
    shard_for,
)
from penstock.server.security import Operation

FIRST_VERSION_WITH_TWO_STEPS = 4
FIRST_VERSION_WITHOUT_PROTOCOL = 7
FIRST_VERSION_THAT_SKIPS_ASSIGNMENT = 9


async def handle(request: Request, message: Any) -> Fields:
    request.session.is_consumer = True  # the group leader will request Metadata on this connection
    try:
        shard = shard_for(request, Operation.READ, message.group_id)
        result = await shard.join(message.group_id, _join_request(request, message))
    except BrokerError as error:
        result = JoinResult(error.code, message.member_id)
    return _fields(request, result)


API = Api(11, 0, 9, handle)


def _join_request(request: Request, message: Any) -> JoinRequest:
    instance_id = getattr(message, "group_instance_id", None)
    session_timeout_ms = message.session_timeout // MILLISECOND
    rebalance_timeout_ms = getattr(message, "rebalance_timeout", NO_TIME) // MILLISECOND
    return JoinRequest(
        member_id=message.member_id,
        instance_id=instance_id,
        client_id=client_id(request),
        client_host=client_host(request),
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
        session_timeout_ms=session_timeout_ms,
        # Version 0 has no rebalance timeout, and some clients send 0.
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms > 0 else session_timeout_ms,
        new_member_id=draw_member_id(request, instance_id),
        requires_known_member_id=request.version >= FIRST_VERSION_WITH_TWO_STEPS and instance_id is None,
        supports_skipping_assignment=request.version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT,
    )


def _fields(request: Request, result: JoinResult) -> Fields:
    protocol_name = result.protocol_name
    if protocol_name is None and request.version < FIRST_VERSION_WITHOUT_PROTOCOL:
        protocol_name = ""
    return {
        "throttle_time": NO_TIME,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": protocol_name,
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in result.members
        ],
    }
