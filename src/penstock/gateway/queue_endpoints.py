"""Endpoints for queues: create, list, describe, change, purge and delete."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.config.retry_backoff import parse_retry_backoff
from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    LONG_MAX,
    NUMBER,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
    nullable,
)
from penstock.internal_client.queue_retention import retain_configs
from penstock.internal_client.queue_views import queue_filter
from penstock.internal_client.queues import NewQueue, QueueDetails, QueueSummary
from penstock.net.acting import own_requests

TAG = "Queues"
QUEUE = path("queue", TOPIC_NAME, "The queue.")
LOCK = {"type": "number", "minimum": 0.001, "maximum": 43_200}
_ATTEMPTS = {"type": "integer", "minimum": 2, "maximum": 100}
_BACK_OFF = {
    "type": "string",
    "maxLength": 2_000,
    "description": "Delays such as `1s,10s,1m`, or `exponential:1s:10m`; empty for none.",
}
_RETAIN = {
    "type": "string",
    "maxLength": 100,
    "description": "`acknowledged` keeps messages until all queues and groups have settled them; or a time: `2w`.",
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "retain": _RETAIN,
    "lock_s": {**LOCK, "description": "Time for which a received message is locked."},
    "max_attempts": {**_ATTEMPTS, "description": "Number of deliveries of a message."},
    "back_off": _BACK_OFF,
    "dead_letter": {
        "type": "string",
        "maxLength": 249,
        "pattern": "^[a-zA-Z0-9._-]*$",
        "description": "Topic of dead letters, which is created unless it exists; empty for none.",
    },
    "order": {
        "type": "string",
        "enum": ["key", "none"],
        "description": "`key`: a message is delivered only when all earlier ones of its key are settled. Or `none`.",
    },
    "priorities": {
        "type": "boolean",
        "description": "Whether messages of a higher priority are delivered first.",
    },
    "max_length": {
        "type": "integer",
        "minimum": 0,
        "maximum": LONG_MAX,
        "description": "Maximum number of messages that are not settled; further ones are refused. 0 for no limit.",
    },
    "priority_share": {
        "type": "number",
        "minimum": 0,
        "maximum": 0.5,
        "description": "Share of deliveries that is reserved for messages of lower priorities.",
    },
}
_PART = {
    "filter": {
        "type": "string",
        "maxLength": 4_096,
        "pattern": "\\S",
        "description": "Messages of the existing topic that the queue has: an expression as of a view.",
    },
    "route": {
        "type": "string",
        "maxLength": 1_000,
        "pattern": "\\S",
        "description": "Messages whose header `penstock-route` matches: `*` is a word, `#` any number of words.",
    },
}
_SUMMARY_FIELDS = {
    "name": STRING,
    "topic": {**STRING, "description": "The topic that share consumers of the queue subscribe to."},
    "of": {**STRING, "description": "The topic of which `topic` is a view; empty without a filter."},
    "filter": STRING,
    "lock_s": NUMBER,
    "max_attempts": INTEGER,
    "back_off": STRING,
    "dead_letter": STRING,
    "order": STRING,
    "priorities": BOOLEAN,
    "priority_share": NUMBER,
    "max_length": INTEGER,
}
_SUMMARY = an_object(_SUMMARY_FIELDS)
_PARTITION_STATE = an_object(
    {
        "partition": INTEGER,
        "start_offset": nullable(INTEGER),
        "depth": {**nullable(INTEGER), "description": "Messages that are not settled."},
        "in_flight": INTEGER,
        "released": {
            **INTEGER,
            "description": "Messages that wait for their next delivery and may be taken.",
        },
        "delayed": {**INTEGER, "description": "Messages that wait for the time of their next delivery."},
    }
)
_DESCRIPTION = an_object(
    {
        **_SUMMARY_FIELDS,
        "depth": INTEGER,
        "in_flight": INTEGER,
        "delayed": INTEGER,
        "kept_by": {
            "type": "object",
            "additionalProperties": STRING,
            "description": "By partition, the groups that deletion waits for in a topic with `retention.acknowledged`.",
        },
        "oldest_age_ms": {
            **nullable(INTEGER),
            "description": "Age of the oldest message that is not settled.",
        },
        "partitions": an_array(_PARTITION_STATE),
    }
)


def on_queue(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "GROUP", parameter="queue")


async def list_queues(call: Call) -> Response:
    found = await call.context.backend.queues.all()
    await call.learn("DESCRIBE", "GROUP", [each.name for each in found])
    shown = [_show(each) for each in found if call.allows("DESCRIBE", "GROUP", each.name)]
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
            raise Problem(400, "a queue of an existing topic has its partitions", error="INVALID_REQUEST")
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
    answer = json_response(_show(await call.context.backend.queues.create(new)), 201)
    answer.headers["location"] = f"/v1/queues/{new.name}"
    return answer


async def describe_queue(call: Call) -> Response:
    backend, name = call.context.backend, call.parameters["queue"]
    details = await backend.queues.describe(name)
    with own_requests():  # shows the age of a message, and not the message
        oldest = await backend.queue_messages.peek(name, details.summary.topic, 1)
    age_ms = max(0, call.context.clock.now_ms() - oldest[0].record.timestamp) if oldest else None
    return json_response({**_describe(details), "oldest_age_ms": age_ms})


async def alter_queue(call: Call) -> Response:
    name, chosen = call.parameters["queue"], queue_filter(call.body.get("filter"), call.body.get("route"))
    if chosen:
        await call.require("ALTER_CONFIGS", "TOPIC", name)
    changed = await call.context.backend.queues.alter(name, _settings(call.body), chosen, _retain(call.body))
    return json_response(_show(changed))


async def purge_queue(call: Call) -> Response:
    return json_response({"purged": await call.context.backend.queues.purge(call.parameters["queue"])})


async def delete_queue(call: Call) -> Response:
    name, keeps_topic = call.parameters["queue"], call.parameters["keep_topic"]
    if not keeps_topic and (await call.context.backend.queues.get(name)).topic == name:
        await call.require("DELETE", "TOPIC", name)
    await call.context.backend.queues.delete(name, keeps_topic=keeps_topic)
    return Response(status_code=204)


def _retain(body: dict[str, Any]) -> str:
    """How long the queue's own topic keeps messages; empty for the default."""
    retain = str(body.get("retain") or "")
    try:
        retain_configs(retain)
    except ValueError as error:
        raise Problem(400, f"retain: {error}", error="INVALID_CONFIG", pointer="/retain") from None
    return retain


def _settings(body: dict[str, Any]) -> dict[str, str | None]:
    """Values of the settings that a body names; null returns a setting to its default."""
    found: dict[str, str | None] = {}
    if "lock_s" in body:
        found["lock_ms"] = None if body["lock_s"] is None else str(max(1, round(body["lock_s"] * 1000)))
    if "max_attempts" in body:
        found["max_attempts"] = None if body["max_attempts"] is None else str(body["max_attempts"])
    for name in ("dead_letter", "order"):
        if name in body:
            found[name] = body[name]
    if "priorities" in body:
        found["priorities"] = None if body["priorities"] is None else str(body["priorities"]).lower()
    if "max_length" in body:
        found["max_length"] = None if body["max_length"] is None else str(body["max_length"])
    if "priority_share" in body:
        found["priority_share"] = None if body["priority_share"] is None else str(body["priority_share"])
    if "back_off" in body:
        found["back_off"] = body["back_off"]
        try:
            parse_retry_backoff(body["back_off"] or "")
        except ValueError as error:
            raise Problem(400, f"back_off: {error}", error="INVALID_CONFIG", pointer="/back_off") from None
    return found


def _show(queue: QueueSummary) -> dict[str, Any]:
    return {
        "name": queue.name,
        "topic": queue.topic,
        "lock_s": queue.lock_ms / 1000,
        "max_attempts": queue.max_attempts,
        "back_off": queue.back_off,
        "dead_letter": queue.dead_letter,
        "order": queue.order,
        "priorities": queue.priorities,
        "priority_share": queue.priority_share,
        "max_length": queue.max_length,
        "of": queue.of,
        "filter": queue.filter,
    }


def _describe(details: QueueDetails) -> dict[str, Any]:
    return {
        **_show(details.summary),
        "depth": details.depth,
        "in_flight": details.in_flight,
        "delayed": details.delayed,
        "kept_by": {str(partition): reason for partition, reason in details.kept_by.items()},
        "partitions": [
            {
                "partition": each.partition,
                "start_offset": each.start_offset,
                "depth": each.depth,
                "in_flight": each.in_flight,
                "released": each.waiting,
                "delayed": each.delayed,
            }
            for each in details.partitions
        ],
    }


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/queues",
        "listQueues",
        TAG,
        "All queues.",
        list_queues,
        {200: DeclaredResponse("By name.", an_object({"queues": an_array(_SUMMARY)}))},
    ),
    Endpoint(
        "POST",
        "/v1/queues",
        "createQueue",
        TAG,
        "Create a queue: with a topic of its own, or of an existing topic.",
        create_queue,
        {201: DeclaredResponse("The queue.", _SUMMARY)},
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
                    **_PART,
                    **_SETTINGS,
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
        {200: DeclaredResponse("The queue.", _DESCRIPTION)},
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
        {200: DeclaredResponse("The queue.", _SUMMARY)},
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    **_PART,
                    **{name: nullable(schema) for name, schema in _SETTINGS.items()},
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
