"""Endpoints for figures over time (`/v1/history`) and for an event stream of current figures (`/v1/live`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.group_listing import show_group
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, NUMBER, an_array, an_object
from penstock.gateway.push.sse import CONTENT_TYPE, EventStream
from penstock.gateway.push.stream import Event
from penstock.gateway.topic_listing import show_topic
from penstock.gateway.view.history import Series
from penstock.gateway.view.overview import overview

TICK_SECONDS = 1.0
MAX_NAMES = 100
MAX_SERIES = 50
KINDS = {"topic": "TOPIC", "group": "GROUP", "broker": "CLUSTER", "cluster": "CLUSTER"}
_NAMES = {"type": "string", "minLength": 1, "maxLength": 7_000}
_HISTORY = an_object(
    {
        "step_ms": INTEGER,
        "end_ms": {**INTEGER, "description": "Time of the last value of every series."},
        "series": {
            "type": "object",
            "additionalProperties": an_array({"type": ["number", "null"]}),
            "description": "Values by name, oldest first, null where there is none.",
        },
    }
)


async def show_history(call: Call) -> Response:
    wanted = _split(call.parameters["series"], MAX_SERIES)
    now_ms = call.context.clock.now_ms()
    found: dict[str, list[float | None]] = {}
    is_fine = call.parameters["step"] == "2s"
    step_ms = 2_000 if is_fine else 60_000
    for text in wanted:
        kind, _, rest = text.partition(":")
        await call.learn("DESCRIBE", KINDS.get(kind, "CLUSTER"), (rest.rpartition(":")[0],))
        series = _find(call, text)
        if series is not None:
            values = (series.fine if is_fine else series.coarse).until(now_ms)
            found[text] = [None if value is None else round(value, 3) for value in values]
    return json_response({"step_ms": step_ms, "end_ms": now_ms // step_ms * step_ms, "series": found})


def _find(call: Call, text: str) -> Series | None:
    """Return the series with a name such as `topic:orders:records`; None if it is unknown or hidden from the client.

    Raises Problem (400) if the name is malformed.
    """
    kind, _, rest = text.partition(":")
    name, _, figure = rest.rpartition(":")
    if kind not in KINDS or not name or not figure:
        raise Problem(
            400, f"{text[:80]!r} is not a series; give one as topic:orders:records", error="INVALID_REQUEST"
        )
    if kind in ("topic", "group") and not call.allows("DESCRIBE", KINDS[kind], name):
        return None
    return call.context.sampler.history.get(kind, name, figure)


def _split(text: str, limit: int) -> list[str]:
    names = [name for name in text.split(",") if name]
    if len(names) > limit:
        raise Problem(400, f"give at most {limit} names", error="INVALID_REQUEST")
    return names


class LiveFigures:
    """`EventSource` that sends the figures of chosen topics and groups once a second."""

    is_exhausted = False

    def __init__(self, call: Call) -> None:
        self._call = call
        self._topics = _split(call.parameters.get("topics", ""), MAX_NAMES)
        self._groups = _split(call.parameters.get("groups", ""), MAX_NAMES)
        self._is_first = True

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        if not self._is_first:
            await asyncio.sleep(TICK_SECONDS)
        self._is_first = False
        shown = await self._show()
        return [Event(str(shown["time_ms"]), msgspec.json.encode(shown))]

    async def _show(self) -> dict[str, Any]:
        context, call = self._call.context, self._call
        view = context.view
        await call.learn("DESCRIBE", "TOPIC", self._topics)
        await call.learn("DESCRIBE", "GROUP", self._groups)
        shown: dict[str, Any] = {
            "time_ms": context.clock.now_ms(),
            "sampled_ms": context.sampler.sampled_ms,
            "topics": [
                show_topic(view, view.topics[name])
                for name in self._topics
                if name in view.topics and call.allows("DESCRIBE", "TOPIC", name)
            ],
            "groups": [
                show_group(view.groups[name])
                for name in self._groups
                if name in view.groups and call.allows("DESCRIBE", "GROUP", name)
            ],
        }
        if self._call.parameters["overview"]:
            shown["overview"] = await overview(context.sampler)
        return shown

    async def finish(self) -> None:
        """Do nothing: the figures hold no resources."""


async def show_live(call: Call) -> Response:
    return EventStream(LiveFigures(call), call.request_id)


async def show_overview(call: Call) -> Response:
    await call.context.view.refresh()
    return json_response(await overview(call.context.sampler))


_BROKER = an_object(
    {
        "id": INTEGER,
        "error": {"type": "string", "description": "Why the broker does not answer; empty where it does."},
        "partitions": INTEGER,
        "connections": INTEGER,
        "received_rate": NUMBER,
        "sent_rate": NUMBER,
        "request_rate": NUMBER,
        "free_bytes": INTEGER,
        "disk_full": BOOLEAN,
        "alarms": an_array({"type": "object"}),
    }
)
_OVERVIEW = an_object(
    {
        "topics": INTEGER,
        "partitions": INTEGER,
        "groups": INTEGER,
        "bytes": INTEGER,
        "records": INTEGER,
        "record_rate": NUMBER,
        "byte_rate": NUMBER,
        "under_replicated": INTEGER,
        "without_leader": INTEGER,
        "status": {"type": "string", "enum": ["ok", "degraded", "failing"]},
        "problems": an_array({"type": "object"}),
        "worst_lag": an_array({"type": "object"}),
        "busiest": an_array({"type": "object"}),
        "seconds_to_full": {"type": ["number", "null"]},
        "brokers": an_array(_BROKER),
    }
)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/history",
        "history",
        "Figures",
        "Figures over the last ten minutes or 24 hours, as far as this process has seen them.",
        show_history,
        {200: DeclaredResponse("Values by series.", _HISTORY)},
        parameters=(
            query(
                "series",
                _NAMES,
                "Series, separated by commas: cluster:cluster:records, topic:NAME:bytes, group:NAME:lag, "
                "broker:ID:received.",
                required=True,
            ),
            query(
                "step",
                {"type": "string", "enum": ["2s", "1m"], "default": "2s"},
                "2s for ten minutes, 1m for 24 hours.",
            ),
        ),
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "GET",
        "/v1/overview",
        "overview",
        "Figures",
        "The cluster at a glance: problems, rates, the worst lag, space on disks.",
        show_overview,
        {200: DeclaredResponse("The figures.", _OVERVIEW)},
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "GET",
        "/v1/live",
        "live",
        "Figures",
        "Figures of chosen topics and groups once a second, as server-sent events.",
        show_live,
        {200: DeclaredResponse("Events, until the client disconnects.", content_type=CONTENT_TYPE)},
        parameters=(
            query("topics", _NAMES, "Names of topics, separated by commas."),
            query("groups", _NAMES, "Ids of groups, separated by commas."),
            query("overview", {**BOOLEAN, "default": False}, "Whether to send the overview too."),
        ),
        is_stream=True,
        needs=(on_cluster("DESCRIBE"),),
    ),
)
