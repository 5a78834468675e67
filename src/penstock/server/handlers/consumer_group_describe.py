"""ConsumerGroupDescribe: consumer groups with their members and assignments (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import DescribedMember, GroupDescription, GroupKind
from penstock.groups.records import Assignment
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation, ResourceType

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(request: Request, message: Any) -> Fields:
    return describe_groups(request, message, _find, _member)


API = Api(69, 0, 1, handle)


def describe_groups(
    request: Request,
    message: Any,
    find: Callable[[Request, str], GroupDescription],
    member_fields: Callable[[Request, DescribedMember], Fields],
) -> Fields:
    """Response that describes consumer or share groups. A BrokerError of `find` becomes the error of that group."""
    groups = []
    for group_id in dict.fromkeys(message.group_ids):
        fields = _group(request, group_id, find, member_fields)
        if message.include_authorized_operations and fields["error_code"] is ErrorCode.none:
            fields["authorized_operations"] = request.authorized_operations(ResourceType.GROUP, group_id)
        groups.append(fields)
    return {"throttle_time": NO_TIME, "groups": groups}


def _group(
    request: Request,
    group_id: str,
    find: Callable[[Request, str], GroupDescription],
    member_fields: Callable[[Request, DescribedMember], Fields],
) -> dict[str, Any]:
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
        group = find(request, group_id)
        _check_topics(request, group)
    except BrokerError as error:
        return fields | {"error_code": error.code, "error_message": str(error)}
    return fields | {
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.protocol_name,
        "members": [member_fields(request, member) for member in group.members],
    }


def _find(request: Request, group_id: str) -> GroupDescription:
    group = shard_for(request, Operation.DESCRIBE, group_id).describe(group_id)
    if group.kind is not GroupKind.CONSUMER:
        raise BrokerError(ErrorCode.group_id_not_found, f"{group_id} is a {group.kind} group")
    return group


def _check_topics(request: Request, group: GroupDescription) -> None:
    """Require that the client may describe all topics of the members."""
    known = request.context.image.topic_names
    names = {name for member in group.members for name in member.subscribed_topics}
    for member in group.members:
        names.update(known[topic_id] for topic_id in (*member.current, *member.target) if topic_id in known)
    for name in names:
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _member(request: Request, member: DescribedMember) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topics,
        "subscribed_topic_regex": member.subscribed_regex,
        "assignment": assignment_fields(request, member.current),
        "target_assignment": assignment_fields(request, member.target),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def assignment_fields(request: Request, assignment: Assignment) -> Fields:
    """Fields of an assignment, without deleted topics."""
    names = request.context.image.topic_names
    partitions = [
        {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": sorted(partitions)}
        for topic_id, partitions in assignment.items()
        if topic_id in names
    ]
    return {"topic_partitions": partitions}
