"""Endpoints for schedules: create, list, describe, pause, resume, run and delete.

Brokers check the rights, because the topic of a schedule is part of its stored definition: changing a schedule needs
WRITE on the topic, and seeing it needs DESCRIBE.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import iso_time, json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    STRING,
    TIME,
    TOPIC_NAME,
    an_array,
    an_object,
    nullable,
)
from penstock.internal_client.schedule_documents import details_document, summary_document
from penstock.internal_client.schedules import CATCH_UPS, DEFAULT_CATCH_UP, DEFAULT_TIMEZONE, NewSchedule

TAG = "Schedules"
_SCHEDULE = path("schedule", TOPIC_NAME, "The schedule.")
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_SUMMARY_FIELDS = {
    "name": STRING,
    "cron": STRING,
    "timezone": STRING,
    "topic": STRING,
    "catch_up": STRING,
    "paused": BOOLEAN,
    "next": nullable(TIME),
    "next_ms": nullable(INTEGER),
    "last": nullable(TIME),
    "last_ms": nullable(INTEGER),
    "fired": INTEGER,
    "missed": {**INTEGER, "description": "Times that passed without a message."},
}
_DETAILS_FIELDS = {
    **_SUMMARY_FIELDS,
    "created": TIME,
    "created_ms": INTEGER,
    "next_times": {**an_array(TIME), "description": "The next five times."},
    "next_times_ms": an_array(INTEGER),
    "in_flight_ms": nullable(INTEGER),
    "waiting_runs": {**INTEGER, "description": "Requested firings that wait."},
    "problem": {**nullable(STRING), "description": "Reason why the schedule cannot fire."},
}
_DETAILS = an_object(
    {
        **_DETAILS_FIELDS,
        "key": nullable(STRING),
        "key_base64": _BASE64,
        "value": nullable(STRING),
        "value_base64": _BASE64,
        "headers": an_array(
            an_object(
                {"name": STRING, "value": nullable(STRING), "value_base64": _BASE64}, required=("name",)
            )
        ),
    },
    required=tuple(_DETAILS_FIELDS),
)
_NEW = an_object(
    {
        "name": TOPIC_NAME,
        "cron": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Five fields, six with seconds first, @daily and its relatives, or @every 90s.",
        },
        "timezone": {"type": "string", "minLength": 1, "maxLength": 100, "default": DEFAULT_TIMEZONE},
        "topic": TOPIC_NAME,
        "key": nullable(STRING),
        "key_base64": _BASE64,
        "value": nullable(STRING),
        "value_base64": _BASE64,
        "headers": {"type": "object", "maxProperties": 100, "additionalProperties": STRING},
        "catch_up": {
            "type": "string",
            "enum": list(CATCH_UPS),
            "default": DEFAULT_CATCH_UP,
            "description": "Which missed times are made up for: none, the last one, or all.",
        },
    },
    required=("name", "cron", "topic"),
)


async def list_schedules(call: Call) -> Response:
    found = await call.context.backend.schedules.all()
    return json_response({"schedules": [summary_document(each) for each in found]})


async def create_schedule(call: Call) -> Response:
    body = call.body
    new = NewSchedule(
        body["name"],
        body["cron"],
        body["topic"],
        body.get("timezone", DEFAULT_TIMEZONE),
        _read_bytes(body, "key"),
        _read_bytes(body, "value"),
        tuple((name, text.encode()) for name, text in body.get("headers", {}).items()),
        body.get("catch_up", DEFAULT_CATCH_UP),
    )
    answer = json_response(details_document(await call.context.backend.schedules.create(new)), 201)
    answer.headers["location"] = f"/v1/schedules/{new.name}"
    return answer


async def describe_schedule(call: Call) -> Response:
    details = await call.context.backend.schedules.describe(call.parameters["schedule"])
    return json_response(details_document(details))


async def pause_schedule(call: Call) -> Response:
    details = await call.context.backend.schedules.pause(call.parameters["schedule"])
    return json_response(details_document(details))


async def resume_schedule(call: Call) -> Response:
    details = await call.context.backend.schedules.resume(call.parameters["schedule"])
    return json_response(details_document(details))


async def run_schedule(call: Call) -> Response:
    name = call.parameters["schedule"]
    time_ms = await call.context.backend.schedules.run(name)
    return json_response({"name": name, "scheduled_for": iso_time(time_ms), "scheduled_for_ms": time_ms}, 202)


async def delete_schedule(call: Call) -> Response:
    await call.context.backend.schedules.delete(call.parameters["schedule"])
    return Response(status_code=204)


def _read_bytes(body: dict[str, Any], name: str) -> bytes | None:
    encoded, text = body.get(f"{name}_base64"), body.get(name)
    if encoded is None:
        return None if text is None else str(text).encode()
    if text is not None:
        raise Problem(400, f"give {name} or {name}_base64, not both", error="INVALID_REQUEST")
    try:
        return b64decode(encoded, validate=True)
    except (Error, ValueError):
        raise Problem(
            400, "this is not base64 with padding", error="INVALID_REQUEST", pointer=f"/{name}_base64"
        ) from None


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/schedules",
        "listSchedules",
        TAG,
        "All schedules whose topics the user may describe.",
        list_schedules,
        {
            200: DeclaredResponse(
                "Ordered by name.", an_object({"schedules": an_array(an_object(_SUMMARY_FIELDS))})
            )
        },
    ),
    Endpoint(
        "POST",
        "/v1/schedules",
        "createSchedule",
        TAG,
        "Create a schedule, which sends a message to a topic again and again.",
        create_schedule,
        {201: DeclaredResponse("The schedule.", _DETAILS)},
        bodies={JSON: _NEW},
        needs=(RequiredPermission("WRITE", "TOPIC", field="topic"),),
    ),
    Endpoint(
        "GET",
        "/v1/schedules/{schedule}",
        "describeSchedule",
        TAG,
        "A schedule with its message and its next five times.",
        describe_schedule,
        {200: DeclaredResponse("The schedule.", _DETAILS)},
        parameters=(_SCHEDULE,),
    ),
    Endpoint(
        "POST",
        "/v1/schedules/{schedule}/pause",
        "pauseSchedule",
        TAG,
        "Stop a schedule until it is resumed.",
        pause_schedule,
        {200: DeclaredResponse("The schedule.", _DETAILS)},
        parameters=(_SCHEDULE,),
    ),
    Endpoint(
        "POST",
        "/v1/schedules/{schedule}/resume",
        "resumeSchedule",
        TAG,
        "Let a paused schedule fire again. Times of the pause are not made up for.",
        resume_schedule,
        {200: DeclaredResponse("The schedule.", _DETAILS)},
        parameters=(_SCHEDULE,),
    ),
    Endpoint(
        "POST",
        "/v1/schedules/{schedule}/run",
        "runSchedule",
        TAG,
        "Send the message of a schedule now, besides its regular times.",
        run_schedule,
        {
            202: DeclaredResponse(
                "The message will be written once.",
                an_object({"name": STRING, "scheduled_for": TIME, "scheduled_for_ms": INTEGER}),
            )
        },
        parameters=(_SCHEDULE,),
    ),
    Endpoint(
        "DELETE",
        "/v1/schedules/{schedule}",
        "deleteSchedule",
        TAG,
        "Delete a schedule. Its messages stay in the topic.",
        delete_schedule,
        {204: DeclaredResponse("The schedule is deleted.")},
        parameters=(_SCHEDULE,),
    ),
)
