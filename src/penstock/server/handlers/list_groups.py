"""ListGroups: groups that this broker coordinates. Version 4 adds a filter by state, version 5 a filter by type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import ErrorCode
from penstock.groups.group import CoordinatedGroup
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    if request.context.groups.is_loading:
        code = ErrorCode.coordinator_load_in_progress
        return {"throttle_time": NO_TIME, "error_code": code, "groups": ()}
    states = {name.strip().lower() for name in getattr(message, "states_filter", ())}
    types = {name.strip().lower() for name in getattr(message, "types_filter", ())}
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.describe().protocol_type,
            "group_state": str(group.state),
            "group_type": str(group.kind),
        }
        for group in _known_groups(request)
        if (not states or group.state.lower() in states) and (not types or group.kind.lower() in types)
    ]
    return {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "groups": groups}


API = Api(16, 0, 5, handle)


def _known_groups(request: Request) -> Iterator[CoordinatedGroup]:
    """Groups that the client may describe."""
    sees_all = request.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    for shard in request.context.groups.shards:
        for group in shard.groups.values():
            if sees_all or request.shows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
                yield group
