"""Declarations of the push endpoints: parameters, bodies, permissions. The handlers are in `service.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission, on_group, on_topic
from penstock.gateway.http.endpoint import (
    JSON,
    Call,
    DeclaredResponse,
    Endpoint,
    Parameter,
    header,
    path,
    query,
)
from penstock.gateway.http.shared_schemas import (
    GROUP_ID,
    OFFSET,
    PARTITION,
    PROBLEM,
    STRING,
    TOPIC_NAME,
    USER_ID,
    an_array,
    an_object,
)
from penstock.gateway.mailbox_layouts import TOPIC as MAILBOX
from penstock.gateway.message_forms import MESSAGE
from penstock.gateway.push.position import MAX_LENGTH
from penstock.gateway.push.socket_endpoints import CLOSE_CODES, TAG, upgrade_required
from penstock.gateway.push.sse import CONTENT_TYPE
from penstock.gateway.push.websocket import MAX_CREDIT
from penstock.gateway.view_endpoints import FILTER
from penstock.internal_client.records import EARLIEST, LATEST

WINDOW = 1_000
MAX_WINDOW = 1_000_000
STARTS = {"earliest": EARLIEST, "latest": LATEST}
READS = (on_topic("READ"), on_group("READ"))
_POSITION = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}

_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_WHERE: tuple[Parameter, ...] = (
    query(
        "filter",
        FILTER,
        "Only messages for which this CEL expression is true. The stream reads a view that all streams with this "
        "filter share; its name is the `topic` of the messages.",
    ),
    query(
        "group", GROUP_ID, "The consumer group to read as a member of; without one, all partitions are read."
    ),
    query("partition", PARTITION, "Read this partition alone (without a group)."),
    query("offset", OFFSET, "The first offset to read."),
    query(
        "from",
        {"type": "string", "enum": list(STARTS)},
        "Where to begin without an offset or an id: `latest`, or for a group that has no offsets `earliest`.",
    ),
    query(
        "last_event_id", _POSITION, "The id of the last event seen, for clients that cannot send the header."
    ),
)
_FILTER_OF_STREAM = query("filter", FILTER, "The filter of the stream, if it has one.")
_WINDOW = query(
    "window",
    {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW, "default": WINDOW},
    "The stream ends after this many unacknowledged events of a group, and the client reconnects with "
    "Last-Event-ID.",
)
_LAST_EVENT_ID = header("Last-Event-ID", {"type": "string", "maxLength": MAX_LENGTH}, "The last event seen.")
CLIENT_MESSAGE = an_object(
    {
        "credit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_CREDIT,
            "description": "How many more messages the client takes. Credit adds up, to 1,000,000 at most, and each "
            "message uses one.",
        },
        "ack": {
            "type": "string",
            "description": "The id of a message of a group: it and all before it on this connection are handled.",
        },
    },
    required=(),
)
_GATEWAY_MESSAGE = an_object(
    {
        "id": {"type": "string", "description": "The position: for `ack`, or for `last_event_id` to resume."},
        "message_id": STRING,
        "topic": STRING,
        **MESSAGE["properties"],
        "error": {
            **PROBLEM,
            "description": "The only field of its message; the gateway then closes the connection.",
        },
    },
    required=(),
)
_WHOSE = (
    query("user_id", USER_ID, "User whose messages are read.", required=True),
    query("last_message_id", _POSITION, "The id of the last message seen."),
)
_ACKNOWLEDGED = DeclaredResponse(
    "The partitions that were acknowledged.", an_object({"partitions": an_array(PARTITION)})
)
_STREAM = DeclaredResponse("Events, until the client disconnects.", content_type=CONTENT_TYPE)


class Handlers(Protocol):
    async def events(self, call: Call) -> Response: ...

    async def mailbox_events(self, call: Call) -> Response: ...

    async def acknowledge(self, call: Call) -> Response: ...


def push_endpoints(handlers: Handlers) -> Sequence[Endpoint]:
    return (
        SOCKET_ENDPOINT,
        Endpoint(
            "GET",
            "/v1/topics/{topic}/events",
            "readTopicEvents",
            TAG,
            "Messages as server-sent events.",
            handlers.events,
            {200: _STREAM},
            (_TOPIC, *_WHERE, _WINDOW, _LAST_EVENT_ID),
            is_stream=True,
            needs=READS,
        ),
        Endpoint(
            "POST",
            "/v1/groups/{group}/topics/{topic}/acknowledgements",
            "acknowledgeEvents",
            TAG,
            "Acknowledge events of a group, up to and including one.",
            handlers.acknowledge,
            {200: _ACKNOWLEDGED},
            (path("group", GROUP_ID, "The consumer group."), _TOPIC, _FILTER_OF_STREAM),
            {JSON: an_object({"id": _POSITION})},
            needs=READS,
        ),
        Endpoint(
            "GET",
            "/receive/events",
            "receiveEvents",
            TAG,
            "A user's messages as server-sent events.",
            handlers.mailbox_events,
            {200: _STREAM},
            (*_WHOSE, _LAST_EVENT_ID),
            is_stream=True,
            needs=(RequiredPermission("READ", "TOPIC", MAILBOX, owner="user_id"),),
        ),
    )


async def _refuse_without_upgrade(call: Call) -> Response:
    raise upgrade_required(
        f"read the same messages as server-sent events at /v1/topics/{call.parameters['topic']}/events"
    )


SOCKET_ENDPOINT = Endpoint(
    "GET",
    "/v1/topics/{topic}/stream",
    "streamTopic",
    TAG,
    "Messages over a WebSocket. The gateway sends as many messages as the client has given credit for, and none before "
    "the first credit.",
    _refuse_without_upgrade,
    {101: DeclaredResponse(CLOSE_CODES)},
    (_TOPIC, *_WHERE),
    socket_messages={"client": CLIENT_MESSAGE, "gateway": _GATEWAY_MESSAGE},
    needs=READS,
)
"""WebSocket handshake, declared with parameters and permissions like a request. A GET without an upgrade gets
426 Upgrade Required.
"""
