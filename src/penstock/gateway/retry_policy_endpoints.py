"""Endpoints for the retry policies of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from penstock.config.retry_backoff import parse_retry_backoff
from penstock.delay.retry_policy import RetryPolicy, default_policy
from penstock.gateway.authorization import on_group
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import GROUP_ID, INTEGER, STRING, an_object

_GROUP = path("group", GROUP_ID, "The group.")
_PATH = "/v1/groups/{group}/retry-policy"
_POLICY = an_object(
    {
        "group": STRING,
        "topic": {**STRING, "description": "Topic to which failed messages are produced."},
        "max_attempts": INTEGER,
        "back_off": STRING,
        "dead_letter": STRING,
    }
)
CHOICES: dict[str, Mapping[str, Any]] = {
    "max_attempts": {
        "type": "integer",
        "minimum": 2,
        "maximum": 100,
        "description": "Deliveries of a message, the first one included; 5 by default.",
    },
    "back_off": {
        "type": "string",
        "maxLength": 2_000,
        "description": "Delays such as `1s,10s,1m`, or `exponential:1s:10m`; empty for none.",
    },
    "dead_letter": {
        "type": "string",
        "maxLength": 249,
        "pattern": "^[a-zA-Z0-9._-]*$",
        "description": "Topic after the last attempt, which is created unless it exists; by default `GROUP.dead`.",
    },
    "partitions": {"type": "integer", "minimum": 1, "maximum": 100_000},
}


async def set_policy(call: Call) -> Response:
    body, group = call.body, call.parameters["group"]
    known = default_policy(group)
    try:
        back_off = str(parse_retry_backoff(body["back_off"])) if "back_off" in body else known.back_off
    except ValueError as error:
        raise Problem(400, f"back_off: {error}", error="INVALID_CONFIG", pointer="/back_off") from None
    policy = RetryPolicy(
        group,
        body.get("max_attempts", known.max_attempts),
        back_off,
        body.get("dead_letter", known.dead_letter),
    )
    await call.require("CREATE", "TOPIC", policy.topic)
    await call.require("ALTER_CONFIGS", "TOPIC", policy.topic)
    if policy.dead_letter:
        await call.require("WRITE", "TOPIC", policy.dead_letter)
    done = await call.context.backend.retry_policies.set(policy, body.get("partitions", -1))
    return json_response(_show(done))


async def get_policy(call: Call) -> Response:
    return json_response(_show(await call.context.backend.retry_policies.get(call.parameters["group"])))


async def delete_policy(call: Call) -> Response:
    await call.context.backend.retry_policies.delete(call.parameters["group"])
    return Response(status_code=204)


def _show(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "group": policy.group,
        "topic": policy.topic,
        "max_attempts": policy.max_attempts,
        "back_off": policy.back_off,
        "dead_letter": policy.dead_letter,
    }


ENDPOINTS = (
    Endpoint(
        "PUT",
        _PATH,
        "setRetryPolicy",
        "Groups",
        "Set how a group tries failed messages again, and create its retry topic.",
        set_policy,
        {200: DeclaredResponse("The policy.", _POLICY)},
        parameters=(_GROUP,),
        bodies={JSON: an_object(CHOICES, required=())},
        needs=(on_group("ALTER_CONFIGS"),),
    ),
    Endpoint(
        "GET",
        _PATH,
        "getRetryPolicy",
        "Groups",
        "The retry policy of a group.",
        get_policy,
        {200: DeclaredResponse("The policy.", _POLICY)},
        parameters=(_GROUP,),
        needs=(on_group("DESCRIBE"),),
    ),
    Endpoint(
        "DELETE",
        _PATH,
        "deleteRetryPolicy",
        "Groups",
        "Delete the retry policy of a group. Messages of the retry topic are still delivered.",
        delete_policy,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_GROUP,),
        needs=(on_group("ALTER_CONFIGS"),),
    ),
)
