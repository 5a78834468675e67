"""ShareGroupDescribe: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from typing import Any

from penstock.groups.group import DescribedMember, GroupDescription
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.consumer_group_describe import assignment_fields, describe_groups
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation


def handle(request: Request, message: Any) -> Fields:
    return describe_groups(request, message, _find, _member)


API = Api(77, 1, 1, handle)


def _find(request: Request, group_id: str) -> GroupDescription:
    return shard_for(request, Operation.DESCRIBE, group_id).share.existing(group_id).describe()


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
