"""Heartbeat: a member of a classic group is alive. By far the most frequent request of an idle consumer."""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Parts
from penstock.server.dispatch import Api, Request
from penstock.server.handlers.group_requests import shard_for
from penstock.server.security import Operation
from penstock.wire.heartbeat import decode_heartbeat_request, encode_heartbeat_response


def handle(request: Request, frame: memoryview, position: int) -> Parts:
    version = request.header.api_version
    asked = decode_heartbeat_request(frame, position, version)
    try:
        shard = shard_for(request, Operation.READ, asked.group_id)
        code = shard.heartbeat(asked.group_id, asked.member_id, asked.instance_id, asked.generation)
    except BrokerError as error:
        # Sessions start when the shard is loaded, so until then every member counts as alive.
        code = ErrorCode.none if error.code is ErrorCode.coordinator_load_in_progress else error.code
    return [encode_heartbeat_response(request.header.correlation_id, version, code)]


API = Api(12, 0, 4, handle_raw=handle)
