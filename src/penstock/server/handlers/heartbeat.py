"""Heartbeat: a member of a classic group tells that it is alive. It is by far the most frequent request of an idle
consumer.

A member sends the same bytes every time, so they are decoded only once for each connection.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Parts
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Api, Request, Session
from penstock.server.handlers.group_requests import group_shard
from penstock.server.known_requests import decode_heartbeat
from penstock.server.security import Caller, Operation
from penstock.wire.heartbeat import HeartbeatRequest, decode_heartbeat_request, encode_heartbeat_response

_READ = Operation.READ


def handle(request: Request, frame: memoryview, position: int) -> Parts:
    version = request.header.api_version
    asked = decode_heartbeat_request(frame, position, version)
    return _answer(request.context, request.caller, asked, version, request.header.correlation_id)


def handle_plain(
    context: BrokerContext,
    session: Session,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Parts:
    session.heartbeat = decode_heartbeat(session.heartbeat, frame, position, version)
    return _answer(context, session, session.heartbeat.request, version, correlation_id)


def _answer(
    context: BrokerContext, caller: Caller, asked: HeartbeatRequest, version: int, correlation_id: int
) -> Parts:
    group_id, generation, member_id, instance_id = asked
    try:
        shard = group_shard(context, caller, _READ, group_id)
        code = shard.heartbeat(group_id, member_id, instance_id, generation)
    except BrokerError as error:
        # Session timeouts start when the shard is loaded, so until then every member counts as alive.
        code = ErrorCode.none if error.code is ErrorCode.coordinator_load_in_progress else error.code
    return [encode_heartbeat_response(correlation_id, version, code)]


API = Api(12, 0, 4, handle_raw=handle, handle_plain=handle_plain)
