"""Endpoints for the dead letters of queues: list, redrive and purge."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import INTEGER, LONG_MAX, STRING, TOPIC_NAME, an_array, an_object
from penstock.gateway.message_forms import show_bytes
from penstock.gateway.queue_endpoints import QUEUE, TAG, on_queue
from penstock.internal_client.dead_letters import DeadLetter, LetterOwner, Selection
from penstock.internal_client.queue_contents import decode_content
from penstock.net.acting import own_requests

MAX_LETTERS: Final = 10_000
_SINCE = {"type": "integer", "minimum": 0, "maximum": LONG_MAX}
_FILTER = {"type": "string", "minLength": 1, "maxLength": 10_000}


async def list_dead_letters(call: Call) -> Response:
    queue = await _queue(call, "READ")
    asked = call.parameters
    selection = Selection(asked.get("filter"), asked.get("since_ms", 0), asked["max"])
    found = await call.context.backend.dead_letters.find(queue, selection)
    return json_response({"topic": queue.dead_letter, "messages": [_show(each) for each in found]})


async def redrive(call: Call) -> Response:
    body = call.body or {}
    queue = await _queue(call, "READ")
    target = body.get("to") or queue.sent_to
    await call.require("WRITE", "TOPIC", target)
    await call.require("WRITE", "TOPIC", queue.dead_letter)
    calls = call.context.backend.dead_letters
    selection = Selection(body.get("filter"), body.get("since_ms", 0), body.get("max", 1_000))
    if body.get("dry_run", False):
        chosen = await calls.find(queue, selection)
        return json_response({"redriven": 0, "selected": len(chosen), "to": target})
    with own_requests():  # a redrive uses a transactional id of the gateway, not of the client
        done = await calls.redrive(queue, selection, to=target, rate=body.get("rate"))
    return json_response({"redriven": done, "selected": done, "to": target})


async def purge(call: Call) -> Response:
    queue = await _queue(call, "READ")
    await call.require("WRITE", "TOPIC", queue.dead_letter)
    with own_requests():
        purged = await call.context.backend.dead_letters.purge(queue)
    return json_response({"purged": purged})


async def _queue(call: Call, operation: str) -> LetterOwner:
    queue = await call.context.backend.dead_letters.owner(call.parameters["queue"])
    if not queue.dead_letter:
        raise BrokerError(
            ErrorCode.resource_not_found,
            f"{queue.name} has no dead-letter topic; PATCH /v1/queues/{queue.name} with dead_letter sets it",
        )
    await call.require(operation, "TOPIC", queue.dead_letter)
    return queue


def _show(letter: DeadLetter) -> dict[str, Any]:
    value = decode_content(letter.record.value, letter.record.headers)
    shown = show_bytes("value", value) if isinstance(value, bytes) else {"value": value}
    return {
        "id": letter.id,
        **shown,
        **show_bytes("key", letter.record.key),
        "reason": letter.reason,
        "detail": letter.detail,
        "attempts": letter.attempts,
        "origin": letter.origin,
        "timestamp_ms": letter.record.timestamp,
        "headers": dict(letter.headers),
    }


_LETTER = an_object(
    {
        "id": {"type": "string", "description": "Partition and offset in the dead-letter topic."},
        "value": {"description": "The value as it was sent."},
        "value_base64": STRING,
        "key": {"type": ["string", "null"]},
        "key_base64": STRING,
        "reason": {"type": "string", "description": "rejected, attempts, expired or overflow."},
        "detail": STRING,
        "attempts": INTEGER,
        "origin": {"type": "string", "description": "Topic, partition and offset of the message."},
        "timestamp_ms": INTEGER,
        "headers": {"type": "object", "additionalProperties": STRING},
    },
    required=("id", "reason", "detail", "attempts", "origin", "timestamp_ms", "headers"),
)
_MAX = {"type": "integer", "minimum": 1, "maximum": MAX_LETTERS}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/queues/{queue}/dead-letters",
        "listDeadLetters",
        TAG,
        "Dead letters of a queue that were not redriven or purged.",
        list_dead_letters,
        {
            200: DeclaredResponse(
                "The oldest of each partition first.",
                an_object({"topic": STRING, "messages": an_array(_LETTER)}),
            )
        },
        parameters=(
            QUEUE,
            query("max", {**_MAX, "default": 100}, "The maximum number of dead letters."),
            query("since_ms", _SINCE, "Leave out dead letters before this time."),
            query("filter", _FILTER, "A CEL expression, as in the filter of a view."),
        ),
        needs=(on_queue("READ"),),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/redrives",
        "redrive",
        TAG,
        "Send dead letters back to the queue's topic, or to another one. A repeated redrive sends nothing twice.",
        redrive,
        {
            200: DeclaredResponse(
                "The number of dead letters.",
                an_object({"redriven": INTEGER, "selected": INTEGER, "to": STRING}),
            )
        },
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    "to": {**TOPIC_NAME, "description": "Another topic than that of the queue."},
                    "filter": _FILTER,
                    "since_ms": _SINCE,
                    "max": {**_MAX, "default": 1_000},
                    "rate": {"type": "number", "minimum": 0.001, "description": "Dead letters per second."},
                    "dry_run": {"type": "boolean", "description": "Count the dead letters only."},
                },
                required=(),
            )
        },
        is_body_required=False,
        assumes_json=True,
        is_stream=True,
        needs=(on_queue("READ"),),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/dead-letters/purge",
        "purgeDeadLetters",
        TAG,
        "Discard all dead letters of a queue: they are not listed or redriven any more.",
        purge,
        {200: DeclaredResponse("The number of dead letters.", an_object({"purged": INTEGER}))},
        parameters=(QUEUE,),
        needs=(on_queue("READ"),),
    ),
)
