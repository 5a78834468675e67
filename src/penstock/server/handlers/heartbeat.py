"""Heartbeat: a member of a classic group is alive. By far the most frequent request of an idle consumer."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation


def handle(request: Request, message: Any) -> Fields:
    instance_id = getattr(message, "group_instance_id", None)
    try:
        shard = shard_for(request, Operation.READ, message.group_id)
        code = shard.heartbeat(message.group_id, message.member_id, instance_id, message.generation_id)
    except BrokerError as error:
        # Sessions start anew once the shard is loaded, so until then every member counts as alive.
        code = ErrorCode.none if error.code is ErrorCode.coordinator_load_in_progress else error.code
    return {"throttle_time": NO_TIME, "error_code": code}


API = Api(12, 0, 4, handle)
