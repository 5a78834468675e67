"""Endpoints for webhooks: create, list, describe, alter, pause, resume, test and delete them, and rotate secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
    nullable,
)
from penstock.gateway.view_endpoints import FILTER
from penstock.internal_client.webhooks import (
    DEFAULT_CONCURRENCY,
    DEFAULT_FORMAT,
    DEFAULT_TIMEOUT_MS,
    FORMATS,
    NewWebhook,
    WebhookDetails,
    WebhookSummary,
)

TAG: Final = "Webhooks"
DEFAULT_OVERLAP_S: Final = 86_400
_WEBHOOK = path("webhook", {**TOPIC_NAME, "maxLength": 200}, "The webhook.")
_SECRET = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Secret that signs the calls: `whsec_` and base64, or any text. Generated unless given.",
}
_ALTERABLE: Final[dict[str, Mapping[str, Any]]] = {
    "url": {"type": "string", "minLength": 1, "maxLength": 4_096},
    "concurrency": {"type": "integer", "minimum": 1, "maximum": 256},
    "timeout_s": {"type": "number", "minimum": 0.01, "maximum": 300},
    "format": {"type": "string", "enum": list(FORMATS)},
}
_SUMMARY_FIELDS: Final = {
    "name": STRING,
    "queue": STRING,
    "topic": {**STRING, "description": "Topic of a queue that was created for the webhook; else empty."},
    "filter": STRING,
    "url": STRING,
    "concurrency": INTEGER,
    "timeout_s": NUMBER,
    "format": STRING,
    "paused": BOOLEAN,
    "paused_reason": STRING,
    "owner": {**INTEGER, "description": "Broker that makes the calls; -1 before it has begun."},
}
_SUMMARY = an_object(_SUMMARY_FIELDS)
_DETAILS_FIELDS: Final = {
    **_SUMMARY_FIELDS,
    "created_ms": INTEGER,
    "secrets": {**INTEGER, "description": "Secrets that sign calls: two during a rotation."},
    "successes": {**INTEGER, "description": "Calls with a 2xx response since this broker makes the calls."},
    "failures": INTEGER,
    "in_flight": INTEGER,
    "last_status": nullable(INTEGER),
    "last_error": STRING,
    "last_call_ms": nullable(INTEGER),
    "last_latency_ms": NUMBER,
    "problem": {**STRING, "description": "Reason why the queue cannot be read; else empty."},
}
_DETAILS = an_object(_DETAILS_FIELDS)
_CREATED = an_object(
    {
        **_DETAILS_FIELDS,
        "secret": {**nullable(STRING), "description": "Secret that was generated. It is not shown again."},
    }
)


async def list_webhooks(call: Call) -> Response:
    found = await call.context.backend.webhooks.all()
    return json_response({"webhooks": [_show(each) for each in found]})


async def create_webhook(call: Call) -> Response:
    body = call.body
    if "topic" in body:
        await call.require("READ", "TOPIC", body["topic"])
    new = NewWebhook(
        body["name"],
        body["url"],
        body.get("queue", ""),
        body.get("topic", ""),
        body.get("filter", ""),
        body.get("concurrency", DEFAULT_CONCURRENCY),
        round(body["timeout_s"] * 1000) if "timeout_s" in body else DEFAULT_TIMEOUT_MS,
        body.get("format", DEFAULT_FORMAT),
        body.get("secret", ""),
    )
    created = await call.context.backend.webhooks.create(new)
    answer = json_response({**_describe(created.details), "secret": created.secret or None}, 201)
    answer.headers["location"] = f"/v1/webhooks/{new.name}"
    return answer


async def describe_webhook(call: Call) -> Response:
    return json_response(_describe(await call.context.backend.webhooks.describe(call.parameters["webhook"])))


async def alter_webhook(call: Call) -> Response:
    changes = dict(call.body)
    if "timeout_s" in changes:
        changes["timeout_ms"] = round(changes.pop("timeout_s") * 1000)
    details = await call.context.backend.webhooks.alter(call.parameters["webhook"], changes)
    return json_response(_describe(details))


async def pause_webhook(call: Call) -> Response:
    return json_response(_describe(await call.context.backend.webhooks.pause(call.parameters["webhook"])))


async def resume_webhook(call: Call) -> Response:
    return json_response(_describe(await call.context.backend.webhooks.resume(call.parameters["webhook"])))


async def rotate_secret(call: Call) -> Response:
    body = call.body or {}
    overlap_ms = round(body.get("overlap_s", DEFAULT_OVERLAP_S) * 1000)
    changed = await call.context.backend.webhooks.rotate_secret(
        call.parameters["webhook"], body.get("secret", ""), overlap_ms
    )
    return json_response({**_describe(changed.details), "secret": changed.secret or None})


async def try_webhook(call: Call) -> Response:
    return json_response(asdict(await call.context.backend.webhooks.test(call.parameters["webhook"])))


async def delete_webhook(call: Call) -> Response:
    await call.context.backend.webhooks.delete(call.parameters["webhook"])
    return Response(status_code=204)


def _show(webhook: WebhookSummary) -> dict[str, Any]:
    shown = asdict(webhook)
    shown["timeout_s"] = shown.pop("timeout_ms") / 1000
    return shown


def _describe(details: WebhookDetails) -> dict[str, Any]:
    shown = asdict(details)
    del shown["summary"]
    return {**_show(details.summary), **shown}


def _action(
    verb: str, name: str, summary: str, handler: Any, response: DeclaredResponse, **more: Any
) -> Endpoint:
    return Endpoint(
        "POST",
        f"/v1/webhooks/{{webhook}}/{verb}",
        name,
        TAG,
        summary,
        handler,
        {200: response},
        parameters=(_WEBHOOK,),
        **more,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/webhooks",
        "listWebhooks",
        TAG,
        "All webhooks.",
        list_webhooks,
        {200: DeclaredResponse("Ordered by name.", an_object({"webhooks": an_array(_SUMMARY)}))},
    ),
    Endpoint(
        "POST",
        "/v1/webhooks",
        "createWebhook",
        TAG,
        "Create a webhook: an HTTP POST for each message of a queue, or for new messages of a topic.",
        create_webhook,
        {201: DeclaredResponse("The webhook.", _CREATED)},
        bodies={
            JSON: an_object(
                {
                    "name": {**TOPIC_NAME, "maxLength": 200},
                    "queue": {**TOPIC_NAME, "description": "An existing queue. Give this or a topic."},
                    "topic": {**TOPIC_NAME, "description": "A topic, of which a queue is created."},
                    "filter": FILTER,
                    **_ALTERABLE,
                    "secret": _SECRET,
                },
                required=("name", "url"),
            )
        },
        needs=(RequiredPermission("READ", "GROUP", field="queue"),),
    ),
    Endpoint(
        "GET",
        "/v1/webhooks/{webhook}",
        "describeWebhook",
        TAG,
        "A webhook: its settings, and its calls. Its secret is not shown.",
        describe_webhook,
        {200: DeclaredResponse("The webhook.", _DETAILS)},
        parameters=(_WEBHOOK,),
    ),
    Endpoint(
        "PATCH",
        "/v1/webhooks/{webhook}",
        "alterWebhook",
        TAG,
        "Change URL, concurrency, timeout or format; calls that have begun end as they are.",
        alter_webhook,
        {200: DeclaredResponse("The webhook.", _DETAILS)},
        parameters=(_WEBHOOK,),
        bodies={JSON: an_object(_ALTERABLE, required=())},
    ),
    _action(
        "pause",
        "pauseWebhook",
        "Stop the calls; messages stay in the queue.",
        pause_webhook,
        DeclaredResponse("The webhook.", _DETAILS),
    ),
    _action(
        "resume",
        "resumeWebhook",
        "Continue the calls of a paused webhook.",
        resume_webhook,
        DeclaredResponse("The webhook.", _DETAILS),
    ),
    _action(
        "rotate-secret",
        "rotateWebhookSecret",
        "Give a webhook another secret. Calls have two signatures until the old secret expires.",
        rotate_secret,
        DeclaredResponse("The webhook.", _CREATED),
        bodies={
            JSON: an_object(
                {
                    "secret": _SECRET,
                    "overlap_s": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 2_592_000,
                        "description": "Seconds for which the old secret signs calls too; a day unless given.",
                    },
                },
                required=(),
            )
        },
        is_body_required=False,
    ),
    _action(
        "test",
        "testWebhook",
        "Call the receiver once with a test message.",
        try_webhook,
        DeclaredResponse(
            "The outcome.",
            an_object({"ok": BOOLEAN, "status": nullable(INTEGER), "latency_ms": NUMBER, "error": STRING}),
        ),
        is_stream=True,
    ),
    Endpoint(
        "DELETE",
        "/v1/webhooks/{webhook}",
        "deleteWebhook",
        TAG,
        "Delete a webhook, and the queue that was created for it.",
        delete_webhook,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_WEBHOOK,),
    ),
)
