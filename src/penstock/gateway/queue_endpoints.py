"""Endpoints for queues: create, list, describe, change, purge and delete."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    TOPIC_NAME,
    an_array,
    an_object,
    nullable,
)
from penstock.gateway.queue_schemas import LOCK as LOCK
from penstock.gateway.queue_schemas import (
    QUEUE_DESCRIPTION,
    QUEUE_PART,
    QUEUE_SETTINGS,
    QUEUE_SUMMARY,
    show_details,
    show_queue,
)
from penstock.internal_client.queue_retention import retain_configs
from penstock.internal_client.queue_settings import stored_settings
from penstock.internal_client.queue_views import queue_filter
from penstock.internal_client.queues import NewQueue
from penstock.net.acting import own_requests

TAG = "Queues"
QUEUE = path("queue", TOPIC_NAME, "The queue.")


def on_queue(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "GROUP", parameter="queue")


async def list_queues(call: Call) -> Response:
    found = await call.context.backend.queues.all()
    await call.learn("DESCRIBE", "GROUP", [each.name for each in found])
    shown = [show_queue(each) for each in found if call.allows("DESCRIBE", "GROUP", each.name)]
    return json_response({"queues": shown})


async def create_queue(call: Call) -> Response:
    body, chosen = call.body, queue_filter(call.body.get("filter"), call.body.get("route"))
    if chosen and "of" not in body:
        raise Problem(
            400, "filter and route need `of`, the topic whose messages they choose", error="INVALID_REQUEST"
        )
    if chosen:
        await call.require("CREATE", "TOPIC", body["name"])
    if "of" in body:
        await call.require("READ", "TOPIC", body["of"])
        if "partitions" in body or "replication_factor" in body:
            raise Problem(
                400,
                "a queue of an existing topic uses its partitions: leave out partitions and replication_factor",
                error="INVALID_REQUEST",
            )
    else:
        await call.require("CREATE", "TOPIC", body["name"])
        await call.require("READ", "TOPIC", body["name"])
    if body.get("dead_letter"):
        await call.require("WRITE", "TOPIC", body["dead_letter"])
    new = NewQueue(
        body["name"],
        body.get("of"),
        body.get("partitions", -1),
        body.get("replication_factor", -1),
        {name: value for name, value in _settings(body).items() if value is not None},
        body.get("from") == "end",
        chosen,
        _retain(body),
    )
    answer = json_response(show_queue(await call.context.backend.queues.create(new)), 201)
    answer.headers["location"] = f"/v1/queues/{new.name}"
    return answer


async def describe_queue(call: Call) -> Response:
    backend, name = call.context.backend, call.parameters["queue"]
    details = await backend.queues.describe(name)
    with own_requests():  # the response has the age of the message, not its content
        oldest = await backend.queue_messages.peek(name, details.summary.topic, 1)
    age_ms = max(0, call.context.clock.now_ms() - oldest[0].record.timestamp) if oldest else None
    return json_response({**show_details(details), "oldest_age_ms": age_ms})


async def alter_queue(call: Call) -> Response:
    name, chosen = call.parameters["queue"], queue_filter(call.body.get("filter"), call.body.get("route"))
    if chosen:
        await call.require("ALTER_CONFIGS", "TOPIC", name)
    changed = await call.context.backend.queues.alter(name, _settings(call.body), chosen, _retain(call.body))
    return json_response(show_queue(changed))


async def purge_queue(call: Call) -> Response:
    return json_response({"purged": await call.context.backend.queues.purge(call.parameters["queue"])})


async def delete_queue(call: Call) -> Response:
    name, keeps_topic = call.parameters["queue"], call.parameters["keep_topic"]
    if not keeps_topic and (await call.context.backend.queues.get(name)).topic == name:
        await call.require("DELETE", "TOPIC", name)
    await call.context.backend.queues.delete(name, keeps_topic=keeps_topic)
    return Response(status_code=204)


def _retain(body: dict[str, Any]) -> str:
    """Return the retention of the queue's own topic as in the request; empty for the default."""
    retain = str(body.get("retain") or "")
    try:
        retain_configs(retain)
    except ValueError as error:
        raise Problem(400, f"retain: {error}", error="INVALID_CONFIG", pointer="/retain") from None
    return retain


def _settings(body: dict[str, Any]) -> dict[str, str | None]:
    try:
        return stored_settings(body)
    except ValueError as error:
        raise Problem(400, str(error), error="INVALID_CONFIG", pointer="/back_off") from None


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/queues",
        "listQueues",
        TAG,
        "All queues.",
        list_queues,
        {200: DeclaredResponse("Ordered by name.", an_object({"queues": an_array(QUEUE_SUMMARY)}))},
    ),
    Endpoint(
        "POST",
        "/v1/queues",
        "createQueue",
        TAG,
        "Create a queue: with a topic of its own, or of an existing topic.",
        create_queue,
        {201: DeclaredResponse("The queue.", QUEUE_SUMMARY)},
        bodies={
            JSON: an_object(
                {
                    "name": TOPIC_NAME,
                    "of": {**TOPIC_NAME, "description": "An existing topic that the queue reads."},
                    "from": {
                        "type": "string",
                        "enum": ["start", "end"],
                        "description": "`end` leaves out messages that an existing topic has now.",
                    },
                    "partitions": {"type": "integer", "minimum": 1, "maximum": 100_000},
                    "replication_factor": {"type": "integer", "minimum": 1, "maximum": 32_767},
                    **QUEUE_PART,
                    **QUEUE_SETTINGS,
                },
                required=("name",),
            )
        },
        needs=(
            RequiredPermission("READ", "GROUP", field="name"),
            RequiredPermission("ALTER_CONFIGS", "GROUP", field="name"),
        ),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}",
        "describeQueue",
        TAG,
        "A queue: its settings, depth, and messages in flight.",
        describe_queue,
        {200: DeclaredResponse("The queue.", QUEUE_DESCRIPTION)},
        parameters=(QUEUE,),
        needs=(on_queue("DESCRIBE"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/queues/{queue}",
        "alterQueue",
        TAG,
        "Change settings of a queue; null returns a setting to its default.",
        alter_queue,
        {200: DeclaredResponse("The queue.", QUEUE_SUMMARY)},
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    **QUEUE_PART,
                    **{name: nullable(schema) for name, schema in QUEUE_SETTINGS.items()},
                },
                required=(),
            )
        },
        needs=(on_queue("ALTER_CONFIGS"),),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/purge",
        "purgeQueue",
        TAG,
        "Settle all messages of a queue without delivering them. Other queues of the topic keep them.",
        purge_queue,
        {200: DeclaredResponse("The number of messages.", an_object({"purged": INTEGER}))},
        parameters=(QUEUE,),
        needs=(on_queue("READ"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{queue}",
        "deleteQueue",
        TAG,
        "Delete a queue, and its topic if the topic has the name of the queue.",
        delete_queue,
        {204: DeclaredResponse("Deleted.")},
        parameters=(QUEUE, query("keep_topic", {**BOOLEAN, "default": False}, "Keep the topic.")),
        needs=(on_queue("DELETE"),),
    ),
)
