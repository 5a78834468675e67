"""SyncGroup: the leader of a classic group sends the assignment of all members; the other members wait for theirs."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import SyncRequest, SyncResult
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation

FIRST_VERSION_WITH_PROTOCOL = 5


async def handle(request: Request, message: Any) -> Fields:
    try:
        shard = shard_for(request, Operation.READ, message.group_id)
        result = await shard.sync(message.group_id, _sync_request(request, message))
    except BrokerError as error:
        result = SyncResult(error.code)
    return {
        "throttle_time": NO_TIME,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }


API = Api(14, 0, 5, handle)


def _sync_request(request: Request, message: Any) -> SyncRequest:
    protocol_type = getattr(message, "protocol_type", None)
    protocol_name = getattr(message, "protocol_name", None)
    if request.version >= FIRST_VERSION_WITH_PROTOCOL and (protocol_type is None or protocol_name is None):
        raise BrokerError(
            ErrorCode.inconsistent_group_protocol,
            "the protocol type and name must be given from version 5 on",
        )
    return SyncRequest(
        member_id=message.member_id,
        instance_id=getattr(message, "group_instance_id", None),
        generation=message.generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments={asked.member_id: asked.assignment for asked in message.assignments},
    )
