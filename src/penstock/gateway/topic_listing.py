"""The list of topics with their figures, and the groups that read a topic."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import on_topic
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, path, query
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
from penstock.gateway.list_parameters import find_all, list_parameters, page_of
from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.figures import TopicFigures
from penstock.gateway.view.listing import Place
from penstock.gateway.view.sampler import lag_by_topic
from penstock.internal_client.slices import collect
from penstock.internal_client.topic_routes import TopicRoute

SORTS = ("name", "bytes", "rate", "lag", "partitions")
LISTED_TOPIC = an_object(
    {
        "name": STRING,
        "id": STRING,
        "partitions": INTEGER,
        "replication_factor": INTEGER,
        "internal": BOOLEAN,
        "bytes": {**INTEGER, "description": "Bytes on the disks of the leaders."},
        "records": {**INTEGER, "description": "Offsets between the start and the end of all partitions."},
        "record_rate": {**NUMBER, "description": "Records written per second, over the last ten seconds."},
        "byte_rate": NUMBER,
        "lag": {**INTEGER, "description": "The greatest lag of a group that reads the topic."},
        "retention_ms": INTEGER,
        "retention_bytes": INTEGER,
        "cleanup_policy": STRING,
        "health": {
            "type": "string",
            "enum": ["ok", "degraded", "failing", "unknown"],
            "description": "degraded: partitions are under-replicated; failing: partitions have no leader; "
            "unknown: the brokers did not report it.",
        },
    }
)
_LIST = an_object(
    {
        "topics": an_array(LISTED_TOPIC),
        "total": {**INTEGER, "description": "Number of topics that match, on all pages."},
        "cursor": {**nullable(STRING), "description": "For the next page; null on the last."},
    }
)
_TOPIC_GROUP = an_object({"id": STRING, "type": STRING, "state": STRING, "members": INTEGER, "lag": INTEGER})


async def list_topics(call: Call) -> Response:
    view = call.context.view
    await view.refresh()
    if not view.has_topics:
        return await _list_without_figures(call)
    with_internal = call.parameters["internal"]
    # Copied in one step, because topics may be deleted while the following steps run.
    topics = [view.topics[name] for name in view.names]
    chosen = topics if with_internal else [topic for topic in topics if not topic.is_internal]
    found = await find_all(chosen, call, "TOPIC", lambda topic: topic.name)
    sort = call.parameters["sort"]
    page = page_of(found, call, lambda topic: topic.name, lambda topic: _place(view, topic, sort))
    shown = await collect(show_topic(view, topic) for topic in page.items)
    return json_response({"topics": shown, "total": len(found), "cursor": page.cursor})


def _place(view: ClusterView, topic: TopicFigures, sort: str) -> Place:
    if sort == "name":
        return 0.0, topic.name
    if sort == "bytes":
        return -view.log_totals(topic.name)[2], topic.name
    value = {"rate": topic.rate.records, "lag": topic.lag, "partitions": topic.partitions}[sort]
    return -value, topic.name


def show_topic(view: ClusterView, topic: TopicFigures) -> dict[str, Any]:
    records, _, size = view.log_totals(topic.name)
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "internal": topic.is_internal,
        "bytes": size,
        "records": records,
        "record_rate": round(topic.rate.records, 3),
        "byte_rate": round(topic.rate.bytes, 3),
        "lag": topic.lag,
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
        "cleanup_policy": topic.cleanup_policy,
        "health": topic.health,
    }


async def _list_without_figures(call: Call) -> Response:
    """List topics from their metadata only, without sizes, if the brokers do not give their figures to the gateway."""
    with_internal = call.parameters["internal"]
    known = [
        each for each in await call.context.backend.topics.all() if with_internal or not each.is_internal
    ]
    found = await find_all(known, call, "TOPIC", lambda topic: topic.name)
    page = page_of(found, call, lambda topic: topic.name, lambda topic: (0.0, topic.name))
    shown = await collect(_show_route(topic) for topic in page.items)
    return json_response({"topics": shown, "total": len(found), "cursor": page.cursor})


def _show_route(topic: TopicRoute) -> dict[str, Any]:
    described = TopicFigures(
        topic.name,
        str(topic.id),
        len(topic.partitions),
        max(len(partition.replicas) for partition in topic.partitions),
        topic.is_internal,
    )
    no_view = {"bytes": 0, "records": 0, "record_rate": 0, "byte_rate": 0, "lag": 0, "health": "unknown"}
    return {
        "name": described.name,
        "id": described.id,
        "partitions": described.partitions,
        "replication_factor": described.replication_factor,
        "internal": described.is_internal,
        "retention_ms": described.retention_ms,
        "retention_bytes": described.retention_bytes,
        "cleanup_policy": described.cleanup_policy,
        **no_view,
    }


async def topic_groups(call: Call) -> Response:
    name, view = call.parameters["topic"], call.context.view
    await call.context.backend.topics.get(name, fresh=True)
    await view.refresh()
    await call.learn("DESCRIBE", "GROUP", view.groups)
    shown = [
        {
            "id": group.id,
            "type": group.type,
            "state": group.state,
            "members": group.members,
            "lag": lag_by_topic(view, group)[name],
        }
        for group in sorted(view.groups.values(), key=lambda group: group.id)
        if name in group.offsets and call.allows("DESCRIBE", "GROUP", group.id)
    ]
    return json_response({"groups": shown})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/topics",
        "listTopics",
        "Topics",
        "Topics with their sizes, rates and health; all of them, or a page.",
        list_topics,
        {200: DeclaredResponse("Ordered as `sort` says.", _LIST)},
        parameters=(
            *list_parameters(SORTS),
            query("internal", {**BOOLEAN, "default": True}, "Whether internal topics are listed too."),
        ),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}/groups",
        "topicGroups",
        "Topics",
        "The groups that read a topic, with their lag in it.",
        topic_groups,
        {200: DeclaredResponse("Ordered by id.", an_object({"groups": an_array(_TOPIC_GROUP)}))},
        parameters=(path("topic", TOPIC_NAME, "The topic."),),
        needs=(on_topic("DESCRIBE"),),
    ),
)
