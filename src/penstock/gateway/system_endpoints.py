"""Endpoints for the gateway itself: health, metrics, the OpenAPI document and the page that shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.responses import Response

from penstock.gateway.health import Health
from penstock.gateway.http.endpoint import JSON, SYSTEM, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.health_app import describe_health
from penstock.gateway.http.openapi import make_document
from penstock.gateway.http.page import CONTENT_POLICY, make_page
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, an_array, an_object
from penstock.observability.exposition import CONTENT_TYPE as METRICS_TYPE

_DAMAGE = an_object(
    {
        "topic": STRING,
        "partition": INTEGER,
        "base_offset": INTEGER,
        "end_offset": {"type": "integer", "description": "The first offset after the damaged records."},
        "reason": STRING,
    }
)
_ALARM = an_object({"kind": STRING, "topic": STRING, "partition": INTEGER, "detail": STRING, "since": STRING})
_HEALTH = an_object(
    {
        "status": STRING,
        "failed_logs": an_array(STRING),
        "failed_log_count": INTEGER,
        "disk_full": BOOLEAN,
        "degraded": {"type": "boolean", "description": "Whether an operator should look at the process."},
        "damage": an_array(_DAMAGE),
        "damage_count": INTEGER,
        "alarms": an_array(_ALARM),
        "alarm_count": INTEGER,
    }
)


def system_endpoints(
    others: Sequence[Endpoint], health: Callable[[], Health], metrics: Callable[[], Awaitable[bytes]]
) -> Sequence[Endpoint]:
    """Return all endpoints: the given ones, and those that describe them."""

    async def show_health(call: Call) -> Response:
        current = health()
        return json_response(describe_health(current), 200 if current.is_ok else 503)

    async def show_metrics(call: Call) -> Response:
        return Response(await metrics(), headers={"content-type": METRICS_TYPE})

    async def show_document(call: Call) -> Response:
        return json_response(document)

    async def show_page(call: Call) -> Response:
        return Response(page, headers={"content-type": "text/html; charset=utf-8", **CONTENT_POLICY})

    every = (
        *others,
        Endpoint(
            "GET",
            "/health",
            "health",
            SYSTEM,
            "Whether this process serves.",
            show_health,
            {
                200: DeclaredResponse("It serves.", _HEALTH),
                503: DeclaredResponse("The process does not serve, or not all partitions.", _HEALTH),
            },
        ),
        Endpoint(
            "GET",
            "/metrics",
            "metrics",
            SYSTEM,
            "Metrics, for Prometheus.",
            show_metrics,
            {200: DeclaredResponse("Prometheus' text.", STRING, METRICS_TYPE.partition(";")[0])},
        ),
        Endpoint(
            "GET",
            "/openapi.json",
            "openapi",
            SYSTEM,
            "The OpenAPI document of this interface.",
            show_document,
            {200: DeclaredResponse("OpenAPI 3.1.", {"type": "object"}, JSON)},
        ),
        Endpoint(
            "GET",
            "/",
            "page",
            SYSTEM,
            "This interface as an HTML page.",
            show_page,
            {200: DeclaredResponse("HTML.", STRING, "text/html")},
        ),
    )
    document = make_document(every)
    page = make_page(every).encode()
    return every
