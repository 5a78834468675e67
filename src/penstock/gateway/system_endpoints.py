"""Endpoints for the gateway itself: health, metrics, the OpenAPI document and the page that shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from penstock.gateway.health import Health
from penstock.gateway.http.endpoint import JSON, SYSTEM, Call, DeclaredResponse, Endpoint, Handler, header
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
        "build": {"type": "string", "description": "Build of the server: pure or compiled."},
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


class _Handlers:
    """Handlers of the endpoints; `document` and `page` describe all endpoints of the gateway."""

    def __init__(
        self, health: Callable[[], Health], metrics: Callable[[], Awaitable[bytes]], has_console: bool
    ) -> None:
        self.document: dict[str, Any] = {}
        self.page = b""
        self._health = health
        self._metrics = metrics
        self._has_console = has_console

    async def show_health(self, call: Call) -> Response:
        health = self._health()
        return json_response(describe_health(health), 200 if health.is_ok else 503)

    async def show_metrics(self, call: Call) -> Response:
        return Response(await self._metrics(), headers={"content-type": METRICS_TYPE})

    async def show_document(self, call: Call) -> Response:
        return json_response(self.document)

    async def show_root(self, call: Call) -> Response:
        """Redirect browsers to the console if it is enabled; return the page that describes the gateway otherwise."""
        if self._has_console and "text/html" in call.parameters.get("Accept", ""):
            return Response(status_code=302, headers={"location": "/console"})
        return await self.show_page(call)

    async def show_page(self, call: Call) -> Response:
        return Response(self.page, headers={"content-type": "text/html; charset=utf-8", **CONTENT_POLICY})


def system_endpoints(
    others: Sequence[Endpoint],
    health: Callable[[], Health],
    metrics: Callable[[], Awaitable[bytes]],
    *,
    has_console: bool = False,
) -> Sequence[Endpoint]:
    """Return all endpoints: `others`, and the system endpoints, some of which describe all endpoints."""
    handlers = _Handlers(health, metrics, has_console)
    every = (*others, *_declarations(handlers))
    handlers.document = make_document(every)
    handlers.page = make_page(every).encode()
    return every


def _declarations(handlers: _Handlers) -> Sequence[Endpoint]:
    health = {
        200: DeclaredResponse("The process serves requests.", _HEALTH),
        503: DeclaredResponse("The process is not running, or has failed logs.", _HEALTH),
    }
    metrics = {
        200: DeclaredResponse(
            "Metrics in the text format of Prometheus.", STRING, METRICS_TYPE.partition(";")[0]
        )
    }
    document = {200: DeclaredResponse("OpenAPI 3.1.", {"type": "object"}, JSON)}
    page = {200: DeclaredResponse("HTML.", STRING, "text/html")}
    return (
        _get("/health", "health", "Whether this process serves requests.", handlers.show_health, health),
        _get("/metrics", "metrics", "Metrics, for Prometheus.", handlers.show_metrics, metrics),
        _get(
            "/openapi.json",
            "openapi",
            "The OpenAPI document of this interface.",
            handlers.show_document,
            document,
        ),
        _get("/api", "apiPage", "This interface as an HTML page.", handlers.show_page, page),
        Endpoint(
            "GET",
            "/",
            "page",
            SYSTEM,
            "This interface as an HTML page; in a browser, the web console.",
            handlers.show_root,
            {**page, 302: DeclaredResponse("The console.")},
            (
                header(
                    "Accept",
                    {"type": "string", "maxLength": 1_000},
                    "`text/html` if a browser sends the request.",
                ),
            ),
        ),
    )


def _get(
    path: str, name: str, summary: str, handler: Handler, responses: Mapping[int, DeclaredResponse]
) -> Endpoint:
    return Endpoint("GET", path, name, SYSTEM, summary, handler, responses)
