"""Endpoints for the definitions of the cluster as one document: read it, and apply one."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import CLUSTER_NAME, on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    CONFIG_VALUES,
    INTEGER,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
)
from penstock.internal_client.definitions import FORMAT, Definitions, Step, carry_out, export, plan

_COUNT = {"type": "integer", "minimum": 1, "maximum": 100_000}
_TOPIC = an_object(
    {
        "name": TOPIC_NAME,
        "partitions": _COUNT,
        "replication_factor": {"type": "integer", "minimum": 1, "maximum": 100},
        "configs": CONFIG_VALUES,
    },
    required=("name",),
)
_DOCUMENT = an_object(
    {
        "format": {"type": "integer", "minimum": FORMAT, "maximum": FORMAT},
        "topics": an_array(_TOPIC, maxItems=100_000),
        "brokers": {**CONFIG_VALUES, "description": "Settings of all brokers."},
    },
    required=("format", "topics"),
)
_SHOWN = an_object(
    {
        "format": INTEGER,
        "topics": an_array(
            an_object(
                {
                    "name": STRING,
                    "partitions": INTEGER,
                    "replication_factor": INTEGER,
                    "configs": {"type": "object", "additionalProperties": STRING},
                }
            )
        ),
        "brokers": {"type": "object", "additionalProperties": STRING},
    }
)
_STEPS = an_object(
    {"dry_run": BOOLEAN, "steps": an_array(an_object({"action": STRING, "topic": STRING, "text": STRING}))}
)
_RIGHTS = {"create": "CREATE", "add_partitions": "ALTER", "configure": "ALTER_CONFIGS", "delete": "DELETE"}


async def show_definitions(call: Call) -> Response:
    backend = call.context.backend
    found = await export(backend.topics, backend.configs)
    await call.learn("DESCRIBE_CONFIGS", "TOPIC", found.topics)
    visible = {
        name: topic for name, topic in found.topics.items() if call.allows("DESCRIBE_CONFIGS", "TOPIC", name)
    }
    return json_response(Definitions(visible, found.brokers).document())


async def apply_definitions(call: Call) -> Response:
    backend, is_dry = call.context.backend, call.parameters["dry_run"]
    wanted = Definitions.read(call.body)
    if len(wanted.topics) != len(call.body["topics"]):
        raise Problem(400, "a topic is named twice", error="INVALID_REQUEST", pointer="/topics")
    present = await export(backend.topics, backend.configs)
    steps = plan(present, wanted, prune=call.parameters["prune"])
    for step in steps:
        await _require(call, step)
    if not is_dry:
        for step in steps:
            await carry_out(step, backend.topics, backend.configs)
    return json_response({"dry_run": is_dry, "steps": [_shown(step) for step in steps]})


async def _require(call: Call, step: Step) -> None:
    if step.action in _RIGHTS:
        await call.require(_RIGHTS[step.action], "TOPIC", step.topic)
    elif step.action == "configure_brokers":
        await call.require("ALTER_CONFIGS", "CLUSTER", CLUSTER_NAME)


def _shown(step: Step) -> dict[str, Any]:
    return {"action": step.action, "topic": step.topic, "text": step.text}


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/definitions",
        "definitions",
        "Cluster",
        "Topics and settings of the cluster as one document.",
        show_definitions,
        {200: DeclaredResponse("The document.", _SHOWN)},
        needs=(on_cluster("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PUT",
        "/v1/definitions",
        "applyDefinitions",
        "Cluster",
        "Create and change topics and settings, as a document says. A step that fails ends it; the steps "
        "before it stay.",
        apply_definitions,
        {200: DeclaredResponse("The steps that were made, or would be.", _STEPS)},
        parameters=(
            query("dry_run", {**BOOLEAN, "default": False}, "Only show the steps."),
            query(
                "prune",
                {**BOOLEAN, "default": False},
                "Also delete topics, and reset settings, that the document does not name.",
            ),
        ),
        bodies={JSON: _DOCUMENT},
        needs=(on_cluster("ALTER"), on_cluster("DESCRIBE_CONFIGS")),
    ),
)
