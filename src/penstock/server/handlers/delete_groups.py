"""DeleteGroups: delete empty groups with their committed offsets."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation


async def handle(request: Request, message: Any) -> Fields:
    results = [
        {"group_id": group_id, "error_code": await _delete(request, group_id)}
        for group_id in dict.fromkeys(message.groups_names)
    ]
    return {"throttle_time": NO_TIME, "results": results}


API = Api(42, 0, 2, handle)


async def _delete(request: Request, group_id: str) -> ErrorCode:
    try:
        shard = shard_for(request, Operation.DELETE, group_id, may_be_empty=True)
        await shard.delete_group(group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none
