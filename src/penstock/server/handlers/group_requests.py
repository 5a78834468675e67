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
"""Limit of the client id in a member id, in characters: a client id may fill a whole string of the protocol."""


def shard_for(
    request: Request, operation: Operation, group_id: str, *, may_be_empty: bool = False
) -> GroupShard:
    """GroupShard of the group; BrokerError when the client is not authorized, or another broker coordinates the
    group.
    """
    return group_shard(request.context, request.caller, operation, group_id, may_be_empty=may_be_empty)


def group_shard(
    context: BrokerContext,
    caller: Caller,
    operation: Operation,
    group_id: str,
    *,
    may_be_empty: bool = False,
) -> GroupShard:
    """The same for a request that is served without a Request."""
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
    """Address of a client, in Kafka's form."""
    return f"/{request.caller.host}"


def topic_key(asked: Any) -> dict[str, Any]:
    """Topic as a request names it, by name or in the newest versions by id, for the response."""
    return {"topic_id": asked.topic_id} if hasattr(asked, "topic_id") else {"name": asked.name}
