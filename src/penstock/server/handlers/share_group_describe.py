"""ShareGroupDescribe: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import DescribedMember
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED
from penstock.server.handlers.consumer_group_describe import assignment_fields, check_topics
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    groups = []
    for group_id in dict.fromkeys(message.group_ids):
        fields = _group(request, group_id)
        if message.include_authorized_operations and fields["error_code"] is ErrorCode.none:
            fields["authorized_operations"] = request.authorized_operations(ResourceType.GROUP, group_id)
        groups.append(fields)
    return {"throttle_time": NO_TIME, "groups": groups}


API = Api(77, 1, 1, handle)


def _group(request: Request, group_id: str) -> dict[str, Any]:
    fields = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
    try:
        group = shard_for(request, Operation.DESCRIBE, group_id).share.existing(group_id).describe()
        check_topics(request, group)
    except BrokerError as error:
        return fields | {"error_code": error.code, "error_message": str(error)}
    return fields | {
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.protocol_name,
        "members": [_member(request, member) for member in group.members],
    }


def _member(request: Request, member: DescribedMember) -> Fields:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topics,
        "assignment": assignment_fields(request, member.current),
    }
