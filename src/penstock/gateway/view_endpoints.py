"""Endpoints for views: a view is a topic that shows only those messages of another topic that match a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from penstock.errors import ConfigError
from penstock.filters.matching import Filter
from penstock.filters.trying import is_match
from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, TOPIC_NAME, an_array, an_object
from penstock.gateway.key_reading import FoundMessages
from penstock.gateway.message_forms import MESSAGE, show_record
from penstock.gateway.newest_reading import MAX_NEWEST, read_newest
from penstock.internal_client.views import View, ViewCalls
from penstock.net.acting import own_requests
from penstock.records.building import NewRecord

TAG = "Views"
FILTER = {
    "type": "string",
    "minLength": 1,
    "maxLength": 4096,
    "description": 'A CEL expression, such as `headers.region == "eu"`.',
}
_TRY_SECONDS = 1.0
"""Time in seconds after which a test of a filter stops and returns the messages found so far."""
_VIEW = path("view", TOPIC_NAME, "The view.")
_DESCRIPTION = an_object({"name": STRING, "of": STRING, "filter": STRING, "shared": BOOLEAN})


async def list_views(call: Call) -> Response:
    return json_response({"views": [_show(view) for view in await _views(call).all()]})


async def create_view(call: Call) -> Response:
    body = call.body
    view = View(body["name"], body["of"], body["filter"], is_shared=False)
    await _views(call).create(view)
    answer = json_response(_show(view), 201)
    answer.headers["location"] = f"/v1/views/{view.name}"
    return answer


async def describe_view(call: Call) -> Response:
    return json_response(_show(await _existing(call)))


async def alter_view(call: Call) -> Response:
    view = await _existing(call)
    await call.require("READ", "TOPIC", view.of)
    await _views(call).set_filter(view.name, call.body["filter"])
    return json_response(_show(await _existing(call)))


async def delete_view(call: Call) -> Response:
    with own_requests():
        view = await _existing(call)
    await call.context.backend.topics.delete(view.name)
    return Response(status_code=204)


async def try_filter(call: Call) -> Response:
    """Evaluate a filter on the newest messages of a topic."""
    topic = await call.context.backend.topics.get(call.body["of"])
    partitions = range(len(topic.partitions))
    try:
        filters = {number: Filter(call.body["filter"], number) for number in partitions}
    except ConfigError as error:
        raise Problem(400, f"filter: {error}", error="INVALID_CONFIG", pointer="/filter") from None
    found = await read_newest(call.context.backend.records, topic.name, partitions, MAX_NEWEST)
    clock = call.context.clock
    deadline = clock.monotonic() + _TRY_SECONDS
    judged = await call.context.threads.run(
        "read", lambda: _judge(filters, found, lambda: clock.monotonic() > deadline)
    )
    return json_response(_summary(found, judged, call.body.get("samples", 10)))


def _judge(
    filters: dict[int, Filter], found: FoundMessages, is_over: Callable[[], bool]
) -> list[bool | None]:
    judged: list[bool | None] = []
    for partition, record in found.found:
        if is_over():
            break
        new = NewRecord(record.key, record.value, record.timestamp, record.headers)
        judged.append(is_match(filters[partition], new, record.offset))
    return judged


def _summary(found: FoundMessages, judged: list[bool | None], samples: int) -> dict[str, Any]:
    matching = [message for message, result in zip(found.found, judged, strict=False) if result]
    return {
        "messages": len(judged),
        "matched": len(matching),
        "failed": judged.count(None),
        "samples": [show_record(record, partition) for partition, record in matching[:samples]],
    }


def _views(call: Call) -> ViewCalls:
    return call.context.backend.views


async def _existing(call: Call) -> View:
    name = call.parameters["view"]
    view = await _views(call).get(name)
    if view is None:
        raise Problem(
            404, f"{name} is a topic, not a view; see /v1/views", error="UNKNOWN_TOPIC_OR_PARTITION"
        )
    return view


def _show(view: View) -> dict[str, Any]:
    return {"name": view.name, "of": view.of, "filter": view.filter, "shared": view.is_shared}


def _on_view(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "TOPIC", parameter="view")


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/views",
        "listViews",
        TAG,
        "All views, with their sources and filters.",
        list_views,
        {200: DeclaredResponse("The views.", an_object({"views": an_array(_DESCRIPTION)}))},
        needs=(RequiredPermission("DESCRIBE", "CLUSTER", "kafka-cluster"),),
    ),
    Endpoint(
        "POST",
        "/v1/views",
        "createView",
        TAG,
        "Create a view: a topic that shows the messages of another topic that match a filter.",
        create_view,
        {201: DeclaredResponse("Created.", _DESCRIPTION)},
        bodies={JSON: an_object({"name": TOPIC_NAME, "of": TOPIC_NAME, "filter": FILTER})},
        needs=(
            RequiredPermission("CREATE", "TOPIC", field="name"),
            RequiredPermission("READ", "TOPIC", field="of"),
        ),
    ),
    Endpoint(
        "POST",
        "/v1/views/test",
        "testFilter",
        TAG,
        "Try a filter on the newest messages of a topic, at most 1,000 and for at most a second.",
        try_filter,
        {
            200: DeclaredResponse(
                "How many messages match, and some of them.",
                an_object(
                    {
                        "messages": INTEGER,
                        "matched": INTEGER,
                        "failed": INTEGER,
                        "samples": an_array(MESSAGE),
                    }
                ),
            )
        },
        bodies={
            JSON: an_object(
                {
                    "of": TOPIC_NAME,
                    "filter": FILTER,
                    "samples": {"type": "integer", "minimum": 0, "maximum": 100, "default": 10},
                },
                required=("of", "filter"),
            )
        },
        needs=(RequiredPermission("READ", "TOPIC", field="of"),),
    ),
    Endpoint(
        "GET",
        "/v1/views/{view}",
        "describeView",
        TAG,
        "A view: its source and its filter.",
        describe_view,
        {200: DeclaredResponse("The view.", _DESCRIPTION)},
        parameters=(_VIEW,),
        needs=(_on_view("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/views/{view}",
        "alterView",
        TAG,
        "Change the filter of a view.",
        alter_view,
        {200: DeclaredResponse("Changed.", _DESCRIPTION)},
        parameters=(_VIEW,),
        bodies={JSON: an_object({"filter": FILTER})},
        needs=(_on_view("ALTER_CONFIGS"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/views/{view}",
        "deleteView",
        TAG,
        "Delete a view, and the offsets that groups have committed in it. The messages of its source stay.",
        delete_view,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_VIEW,),
        needs=(_on_view("DELETE"),),
    ),
)
