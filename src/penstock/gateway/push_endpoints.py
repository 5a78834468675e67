"""What push takes and gives, declared: parameters, bodies, rights. What is done with them is in `push.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.responses import Response

from penstock.gateway.backend import EARLIEST, LATEST
from penstock.gateway.endpoint import JSON, Answer, Call, Endpoint, Parameter, header, path, query
from penstock.gateway.mailbox_layouts import TOPIC as MAILBOX
from penstock.gateway.push_position import MAX_LENGTH
from penstock.gateway.rights import Need, on_group, on_topic
from penstock.gateway.schemas import (
    GROUP_ID,
    OFFSET,
    PARTITION,
    TOPIC_NAME,
    USER_ID,
    an_array,
    an_object,
)
from penstock.gateway.sse import CONTENT_TYPE

WINDOW = 1_000
MAX_WINDOW = 1_000_000
STARTS = {"earliest": EARLIEST, "latest": LATEST}
READS = (on_topic("READ"), on_group("READ"))
_TAG = "Push"
_POSITION = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}

_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_WHERE: tuple[Parameter, ...] = (
    query(
        "group", GROUP_ID, "The consumer group to read as a member of; without one, all partitions are read."
    ),
    query("partition", PARTITION, "Read this partition alone (without a group)."),
    query("offset", OFFSET, "Where to begin in the partition."),
    query(
        "from",
        {"type": "string", "enum": list(STARTS)},
        "Where to begin without an offset or an id: `latest`, or for a group that has no offsets `earliest`.",
    ),
    query("last_event_id", _POSITION, "The id of the last event seen, for who cannot send the header."),
)
_WINDOW = query(
    "window",
    {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW, "default": WINDOW},
    "After so many events of a group that were not acknowledged the stream ends, for the client to come again with "
    "Last-Event-ID.",
)
_LAST_EVENT_ID = header("Last-Event-ID", {"type": "string", "maxLength": MAX_LENGTH}, "The last event seen.")
_STREAM = Answer("Events, as long as the client likes.", content_type=CONTENT_TYPE)


class Handlers(Protocol):
    async def events(self, call: Call) -> Response: ...

    async def mailbox_events(self, call: Call) -> Response: ...

    async def acknowledge(self, call: Call) -> Response: ...


def push_endpoints(handlers: Handlers) -> Sequence[Endpoint]:
    return (
        Endpoint(
            "GET",
            "/v1/topics/{topic}/events",
            "readTopicEvents",
            _TAG,
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
            _TAG,
            "Say that events of a group were handled, all up to one.",
            handlers.acknowledge,
            {200: Answer("The partitions it was taken for.", an_object({"partitions": an_array(PARTITION)}))},
            (path("group", GROUP_ID, "The consumer group."), _TOPIC),
            {JSON: an_object({"id": _POSITION})},
            needs=READS,
        ),
        Endpoint(
            "GET",
            "/receive/events",
            "receiveEvents",
            _TAG,
            "A user's messages as server-sent events.",
            handlers.mailbox_events,
            {200: _STREAM},
            (
                query("user_id", USER_ID, "Whose messages.", required=True),
                query("last_message_id", _POSITION, "The id of the last message seen."),
                _LAST_EVENT_ID,
            ),
            is_stream=True,
            needs=(Need("READ", "TOPIC", MAILBOX),),
        ),
    )


def socket_endpoint(handlers: Handlers) -> Endpoint:
    """What a handshake may say: a WebSocket has parameters and rights as a request has."""
    summary = "Messages over a WebSocket."
    parameters = (_TOPIC, *_WHERE)
    return Endpoint(
        "GET",
        "/v1/topics/{topic}/stream",
        "streamTopic",
        _TAG,
        summary,
        handlers.events,
        {},
        parameters,
        needs=READS,
    )
