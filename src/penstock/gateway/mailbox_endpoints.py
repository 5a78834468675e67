"""Endpoints `POST /send` and `GET /receive` for messages from user to user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.responses import Response

from penstock.config import GATEWAY_MAX_WAIT_MS
from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.delays import DELAY_FIELDS, delay_headers, require_delays
from penstock.gateway.http.endpoint import (
    JSON,
    NOT_CANCELLED,
    Begun,
    Call,
    DeclaredResponse,
    Endpoint,
    header,
    query,
)
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import iso_time, json_response
from penstock.gateway.http.schema import Schema
from penstock.gateway.http.shared_schemas import IDEMPOTENCY_KEY, STRING, TIME, USER_ID, an_array, an_object
from penstock.gateway.mailbox import MailboxMessage
from penstock.gateway.mailbox_layouts import TOPIC
from penstock.gateway.records import Limits
from penstock.gateway.reply import Converted, Reply
from penstock.net.acting import own_requests

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
MAX_PAGE_BYTES = 1024 * 1024
_UNDELAYED_FIELDS = 3
"""Number of fields in the body of a message without a delay."""
_LAST: Schema = {"type": "string", "minLength": 1, "maxLength": 100}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_WAIT: Schema = {"type": "number", "minimum": 0, "maximum": 3_600, "default": 0}
_MESSAGE = an_object(
    {"message_id": STRING, "from_user": STRING, "to_user": STRING, "message": STRING, "timestamp": TIME}
)


async def send(call: Call) -> Response:
    body = call.body
    key = call.parameters.get("Idempotency-Key")
    delay = delay_headers(body, "")
    with own_requests():
        if delay:
            await require_delays(call.context.backend, TOPIC)
        sent = await call.context.mailbox.send(
            body["from_user"], body["to_user"], body["message"], key, delay
        )
    return _show_sent(sent)


def begin_send(call: Call, reply: Reply[Response]) -> Begun | None:
    body = call.body
    if len(body) > _UNDELAYED_FIELDS:
        return None
    key = call.parameters.get("Idempotency-Key")
    sent = Converted(reply, _show_sent)
    is_begun = call.context.mailbox.begin_send(body["from_user"], body["to_user"], body["message"], key, sent)
    return NOT_CANCELLED if is_begun else None


def _show_sent(sent: str) -> Response:
    return json_response({"status": "success", "message_id": sent})


async def receive(call: Call) -> Response:
    with own_requests():
        found = await call.context.mailbox.receive(*_asked(call))
    return _show_received(found)


def begin_receive(call: Call, reply: Reply[Response]) -> Begun | None:
    return call.context.mailbox.begin_receive(*_asked(call), Converted(reply, _show_received))


def _asked(call: Call) -> tuple[str, str | None, Limits, int]:
    """Return the user id, the id of the last message received, the limits of the page, and the wait in milliseconds."""
    asked = dict(call.parameters)
    for name, value in (call.body or {}).items():
        if name in asked and asked[name] != _DEFAULTS.get(name):
            raise Problem(
                400, f"{name} is given in the query and in the body; give it once", error="INVALID_REQUEST"
            )
        asked[name] = value
    if "user_id" not in asked:
        raise Problem(400, "user_id is missing; give it in the query or in the body", error="INVALID_REQUEST")
    wait_ms = min(round(asked["wait"] * 1000), call.context.config[GATEWAY_MAX_WAIT_MS])
    limits = Limits(asked["limit"], MAX_PAGE_BYTES)
    return asked["user_id"], asked.get("last_message_id"), limits, wait_ms


def _show_received(found: Sequence[MailboxMessage]) -> Response:
    return json_response(
        {
            "messages": [
                {
                    "message_id": each.id,
                    "from_user": each.from_user,
                    "to_user": each.to_user,
                    "message": each.message,
                    "timestamp": iso_time(each.time_ms),
                }
                for each in found
            ]
        }
    )


_SEND_BODY = an_object(
    {"from_user": USER_ID, "to_user": USER_ID, "message": STRING, **DELAY_FIELDS},
    required=("from_user", "to_user", "message"),
)
_DEFAULTS = {"limit": DEFAULT_LIMIT, "wait": 0}
_RECEIVE_BODY = an_object(
    {"user_id": USER_ID, "last_message_id": _LAST, "limit": _LIMIT, "wait": _WAIT}, required=()
)
_RECEIVE_PARAMETERS = (
    query("user_id", USER_ID, "User whose messages are read."),
    query(
        "last_message_id",
        _LAST,
        "Only messages after this one; without it from the oldest stored message on.",
    ),
    query("limit", _LIMIT, "The maximum number of messages in the response."),
    query("wait", _WAIT, "Seconds to wait for a message where there is none."),
)
_RECEIVED = DeclaredResponse("Messages, in order.", an_object({"messages": an_array(_MESSAGE)}))
_RECEIVE = Endpoint(
    "GET",
    "/receive",
    "receive",
    "Messages to users",
    "The messages to a user, oldest first.",
    receive,
    {200: _RECEIVED},
    parameters=_RECEIVE_PARAMETERS,
    bodies={JSON: _RECEIVE_BODY},
    is_body_required=False,
    assumes_json=True,
    is_plain=True,
    begin=begin_receive,
    is_stream=True,
    needs=(RequiredPermission("READ", "TOPIC", TOPIC, owner="user_id"),),
)

ENDPOINTS = (
    Endpoint(
        "POST",
        "/send",
        "send",
        "Messages to users",
        "Send a message to a user; the response comes when it is stored durably.",
        send,
        {
            200: DeclaredResponse(
                "Stored.",
                an_object({"status": {"type": "string", "enum": ["success"]}, "message_id": STRING}),
            )
        },
        parameters=(
            header(
                "Idempotency-Key",
                IDEMPOTENCY_KEY,
                "One of several messages to a user with the same key is stored, and all responses have its id.",
            ),
        ),
        bodies={JSON: _SEND_BODY},
        assumes_json=True,
        is_plain=True,
        begin=begin_send,
        needs=(RequiredPermission("WRITE", "TOPIC", TOPIC, owner="from_user"),),
    ),
    _RECEIVE,
    replace(
        _RECEIVE,
        method="POST",
        name="receiveByPost",
        summary="The same as GET, for clients that cannot send a body with GET.",
    ),
)
