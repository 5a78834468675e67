"""LeaveGroup: a member leaves a classic group. From version 3 on a request can have several members, so that an
administrator can remove them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import LeavingMember
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation

FIRST_VERSION_WITH_SEVERAL = 3


async def handle(request: Request, message: Any) -> Fields:
    members = _members(request, message)
    try:
        shard = shard_for(request, Operation.READ, message.group_id)
        errors: Sequence[ErrorCode] = (await shard.leave(message.group_id, members)).errors
    except BrokerError as error:
        if error.code is not ErrorCode.unknown_member_id:
            return {"throttle_time": NO_TIME, "error_code": error.code, "members": ()}
        errors = [error.code] * len(members)
    return {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none if request.version >= FIRST_VERSION_WITH_SEVERAL else errors[0],
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "error_code": code}
            for member, code in zip(members, errors, strict=True)
        ],
    }


API = Api(13, 0, 5, handle)


def _members(request: Request, message: Any) -> list[LeavingMember]:
    if request.version < FIRST_VERSION_WITH_SEVERAL:
        return [LeavingMember(message.member_id, None)]
    return [LeavingMember(member.member_id, member.group_instance_id) for member in message.members]
