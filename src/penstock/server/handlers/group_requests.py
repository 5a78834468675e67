"""Helpers of the handlers of group APIs: the shard of a group, and fields of members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.cluster.topics import draw_uuid
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.shard import GroupShard
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Request
from penstock.server.security import Caller, Operation, ResourceType, require

MILLISECOND = timedelta(milliseconds=1)
MAX_NAME_IN_MEMBER_ID = 255
"""Maximum number of characters of the client id that go into a member id, because the protocol allows client ids of
32,767 bytes.
"""


def shard_for(
    request: Request, operation: Operation, group_id: str, *, may_be_empty: bool = False
) -> GroupShard:
    """Shard of the group. Raises BrokerError if the client is not authorized, or another broker coordinates it."""
    return group_shard(request.context, request.caller, operation, group_id, may_be_empty=may_be_empty)


def group_shard(
    context: BrokerContext,
    caller: Caller,
    operation: Operation,
    group_id: str,
    *,
    may_be_empty: bool = False,
) -> GroupShard:
    """Shard of the group, like `shard_for`, for callers without a `Request` object."""
    require(context.authorizer, caller, operation, ResourceType.GROUP, group_id)
    if not group_id and not may_be_empty:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id must not be empty")
    return context.groups.shard_of(group_id)


def draw_member_id(request: Request, instance_id: str | None) -> str:
    name = client_id(request) if instance_id is None else instance_id
    return f"{name[:MAX_NAME_IN_MEMBER_ID]}-{draw_uuid(request.context.random)}"


def client_id(request: Request) -> str:
    return request.header.client_id or ""


def client_host(request: Request) -> str:
    """Address of a client as Kafka shows it, with a slash in front."""
    return f"/{request.caller.host}"


def topic_key(asked: Any) -> dict[str, Any]:
    """Field that names a topic in the response, by name or by id like the request."""
    return {"topic_id": asked.topic_id} if hasattr(asked, "topic_id") else {"name": asked.name}
