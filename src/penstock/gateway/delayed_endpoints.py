"""Endpoints for delayed messages that are still pending: list, show and cancel."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.authorization import on_topic
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import iso_time, json_response
from penstock.gateway.http.shared_schemas import (
    INTEGER,
    PARTITION,
    STRING,
    TIME,
    TOPIC_NAME,
    an_array,
    an_object,
)
from penstock.gateway.message_forms import MESSAGE, show_record
from penstock.internal_client.delayed import DelayedMessageId, PendingMessage
from penstock.records.iteration import Record

TAG = "Delayed messages"
_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_ID = path(
    "id",
    {"type": "string", "pattern": r"^[0-9]{1,9}-[0-9]{1,18}$"},
    "Partition and offset of the message, such as 0-42.",
)
_PENDING = {"id": STRING, "partition": INTEGER, "offset": INTEGER, "due": TIME, "due_ms": INTEGER}


def _show(message: PendingMessage) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "partition": message.partition,
        "offset": message.offset,
        "due": iso_time(message.due_ms),
        "due_ms": message.due_ms,
    }


async def list_delayed(call: Call) -> Response:
    asked = call.parameters
    try:
        after = PendingMessage.parse_cursor(asked["after"]) if "after" in asked else None
    except ValueError:
        raise Problem(400, "after: give the `next` of the last response", error="INVALID_REQUEST") from None
    page = await call.context.backend.delayed.page(
        asked["topic"], asked.get("partition"), after, asked["limit"]
    )
    shown: dict[str, Any] = {"count": page.total, "messages": [_show(each) for each in page.messages]}
    if len(page.messages) == asked["limit"]:
        shown["next"] = page.messages[-1].cursor
    return json_response(shown)


async def show_delayed(call: Call) -> Response:
    name, message = call.parameters["topic"], DelayedMessageId.parse(call.parameters["id"])
    found = await call.context.backend.delayed.show(name, message)
    headers = tuple((header, value) for header, value in found["headers"])
    record = Record(message.offset, found["stored_ms"], found["key"], found["value"], headers)
    pending = PendingMessage(found["due_ms"], message.partition, message.offset)
    return json_response({**_show(pending), "message": show_record(record, message.partition)})


async def cancel(call: Call) -> Response:
    name, message = call.parameters["topic"], DelayedMessageId.parse(call.parameters["id"])
    backend = call.context.backend
    try:
        await backend.delayed.cancel(backend.producer, name, message, call.context.clock.now_ms())
    except BrokerError as error:
        if error.code is not ErrorCode.invalid_record:
            raise
        raise Problem(409, str(error), error="INVALID_RECORD") from None
    return Response(status_code=204)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/topics/{topic}/delayed",
        "listDelayed",
        TAG,
        "List the messages that are not due yet, in the order of their due times.",
        list_delayed,
        {
            200: DeclaredResponse(
                "Pending messages, and their number in the topic or partition.",
                an_object(
                    {"count": INTEGER, "messages": an_array(an_object(_PENDING)), "next": STRING},
                    required=("count", "messages"),
                ),
            )
        },
        parameters=(
            _TOPIC,
            query("partition", PARTITION, "Only messages of this partition."),
            query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
                "The maximum number of messages in the response.",
            ),
            query(
                "after",
                {"type": "string", "minLength": 1, "maxLength": 60},
                "The `next` of the last response, to continue behind it.",
            ),
        ),
        needs=(on_topic("READ"),),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}/delayed/{id}",
        "showDelayed",
        TAG,
        "Show a message that is not due yet, with its content.",
        show_delayed,
        {200: DeclaredResponse("The message.", an_object({**_PENDING, "message": MESSAGE}))},
        parameters=(_TOPIC, _ID),
        needs=(on_topic("READ"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/topics/{topic}/delayed/{id}",
        "cancelDelayed",
        TAG,
        "Cancel a message that is not due yet. 409 if it is unknown, or was delivered or cancelled before.",
        cancel,
        {204: DeclaredResponse("The message is cancelled for good.")},
        parameters=(_TOPIC, _ID),
        needs=(on_topic("WRITE"),),
    ),
)
