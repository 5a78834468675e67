"""DescribeGroups: classic groups and their members. A missing group has the state Dead, and from version 6 on also the
error GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import DescribedMember, GroupDescription, GroupKind, GroupState
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_WITH_NOT_FOUND = 6


def handle(request: Request, message: Any) -> Fields:
    asks_operations = getattr(message, "include_authorized_operations", False)
    groups = []
    for group_id in dict.fromkeys(message.groups):
        fields = _group(request, group_id)
        if asks_operations and fields["error_code"] is ErrorCode.none:
            operations = request.authorized_operations(ResourceType.GROUP, group_id)
            fields["authorized_operations"] = operations
        groups.append(fields)
    return {"throttle_time": NO_TIME, "groups": groups}


API = Api(15, 0, 6, handle)


def _group(request: Request, group_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
    try:
        shard = shard_for(request, Operation.DESCRIBE, group_id, may_be_empty=True)
        group = shard.describe(group_id)
        if group.kind is not GroupKind.CLASSIC:
            raise BrokerError(ErrorCode.group_id_not_found, f"{group_id} is a {group.kind} group")
    except BrokerError as error:
        if error.code is not ErrorCode.group_id_not_found:
            return fields | {"error_code": error.code, "error_message": str(error)}
        fields["group_state"] = str(GroupState.DEAD)
        if request.version < FIRST_VERSION_WITH_NOT_FOUND:
            return fields
        return fields | {"error_code": error.code, "error_message": str(error)}
    return fields | _described(group)


def _described(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_state": str(group.state),
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [_member(member) for member in group.members],
    }


def _member(member: DescribedMember) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
