"""Endpoints for requests over queues: send a message and wait for its reply, and reply to a received message."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, STRING, an_object
from penstock.gateway.message_forms import show_bytes
from penstock.gateway.queue_endpoints import QUEUE, TAG, on_queue
from penstock.gateway.queue_message_endpoints import choose_partition, new_record
from penstock.internal_client.queue_contents import decode_content, encode_content
from penstock.internal_client.replies import REPLY_TO, parse_reply_place, reply_topic
from penstock.net.acting import acting_for

DEFAULT_TIMEOUT_S = 5
MAX_TIMEOUT_S = 60
_REPLY_MS = 20
"""Time in milliseconds between the expiry of a request and the end of the requester's wait for the reply."""


async def request(call: Call) -> Response:
    queue, body, backend = call.parameters["queue"], call.body, call.context.backend
    timeout_s = body.get("timeout", DEFAULT_TIMEOUT_S)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    topic = (await backend.queues.get_known(queue)).sent_to
    await call.require("WRITE", "TOPIC", topic)
    await call.require("READ", "TOPIC", reply_topic(queue))
    place = await backend.replies.place(queue, call.request_id)
    left_ms = max(1, round((deadline - loop.time()) * 1000) - _REPLY_MS)
    headers = {**body.get("headers", {}), REPLY_TO: str(place)}
    message = {**body, "ttl_ms": left_ms, "headers": headers}
    record = new_record(message, "", call.context.clock.now_ms())
    partitions = (await backend.topics.get(topic)).active_count
    await backend.records.produce(topic, choose_partition(record, partitions), record)
    found = await backend.replies.wait(place, max(0.0, deadline - loop.time()))
    if found is None:
        raise Problem(
            504,
            f"no reply within {timeout_s:g} s; the request has expired, unless a consumer has received it already",
            error="REQUEST_TIMED_OUT",
        )
    value = decode_content(found.value, found.headers)
    return json_response(show_bytes("value", value) if isinstance(value, bytes) else {"value": value})


async def reply(call: Call) -> Response:
    queue = call.parameters["queue"]
    try:
        place = parse_reply_place(call.body["reply_to"], queue)
        value, content_type = encode_content(call.body["value"])
    except (TypeError, ValueError) as error:
        raise Problem(400, str(error), error="INVALID_REQUEST") from None
    await call.require("WRITE", "TOPIC", place.topic)
    is_first = await call.context.backend.replies.reply(
        place, value, content_type, call.context.clock.now_ms(), acting_for.get()
    )
    return json_response({"stored": is_first})


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/queues/{queue}/requests",
        "requestFromQueue",
        TAG,
        "Send a message and wait for the reply of its consumer; 504 without a reply in time.",
        request,
        {
            200: DeclaredResponse(
                "The reply.",
                an_object({"value": {"description": "Any JSON."}, "value_base64": STRING}, required=()),
            )
        },
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    "value": {"description": "Any JSON; text is stored as it is."},
                    "key": {"type": ["string", "null"]},
                    "headers": {"type": "object", "maxProperties": 100, "additionalProperties": STRING},
                    "timeout": {
                        "type": "number",
                        "minimum": 0.1,
                        "maximum": MAX_TIMEOUT_S,
                        "description": "Seconds to wait for the reply; 5 unless given.",
                    },
                },
                required=("value",),
            )
        },
        assumes_json=True,
        is_stream=True,
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/replies",
        "replyToRequest",
        TAG,
        f"Reply to a received message. The first reply counts; `reply_to` is its header `{REPLY_TO}`.",
        reply,
        {200: DeclaredResponse("Whether this reply counts.", an_object({"stored": BOOLEAN}))},
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    "reply_to": {"type": "string", "maxLength": 400},
                    "value": {"description": "Any JSON; text is stored as it is."},
                }
            )
        },
        assumes_json=True,
        needs=(on_queue("READ"),),
    ),
)
