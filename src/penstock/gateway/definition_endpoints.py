"""Endpoints for the definitions of the cluster as one document: read the present one, and apply another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.definition_schemas import DOCUMENT
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, STRING, an_array, an_object
from penstock.internal_client.definitions.planning import (
    SECTIONS,
    Definitions,
    InvalidDefinition,
    carry_out,
    check,
    document,
    export,
    plan,
    read_document,
)
from penstock.internal_client.definitions.reading import DefinitionReading

DOCUMENT_MAX_BYTES = 32 * 1024 * 1024
"""Maximum size of a document: about 200,000 topics. Documents are checked in a thread pool."""
_STEPS = an_object(
    {
        "dry_run": BOOLEAN,
        "steps": an_array(
            an_object(
                {
                    "action": {
                        **STRING,
                        "description": "create, change or delete; differs: a difference that is shown and not changed.",
                    },
                    "section": STRING,
                    "name": STRING,
                    "text": STRING,
                    "changes": {
                        "type": "object",
                        "additionalProperties": an_object({"from": {}, "to": {}}),
                        "description": "Values before and after; null is the default.",
                    },
                    "problem": {
                        **STRING,
                        "description": "Reason why a broker would refuse a new topic, found by a dry run.",
                    },
                }
            )
        ),
    }
)


async def show_definitions(call: Call) -> Response:
    return json_response(document(await _present(call)))


async def apply_definitions(call: Call) -> Response:
    is_dry, threads = call.parameters["dry_run"], call.context.threads
    try:
        wanted = await threads.run("background", lambda: read_document(call.body))
    except InvalidDefinition as error:
        raise Problem(400, str(error), error="INVALID_REQUEST", pointer=error.pointer) from None
    present = await _present(call)
    steps = await threads.run("background", lambda: plan(present, wanted, prune=call.parameters["prune"]))
    for operation, kind, name in {right for step in steps for right in SECTIONS[step.section].rights(step)}:
        await call.require(operation, kind, name)
    if is_dry:
        steps = await check(steps, call.context.backend)
    else:
        await carry_out(steps, call.context.backend)
    return json_response({"dry_run": is_dry, "steps": [step.document() for step in steps]})


async def _present(call: Call) -> Definitions:
    async def visible(kind: str, names: Sequence[str]) -> Iterable[str]:
        await call.learn("DESCRIBE_CONFIGS", kind, names)
        return [name for name in names if call.allows("DESCRIBE_CONFIGS", kind, name)]

    return await export(DefinitionReading(call.context.backend, visible))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/definitions",
        "definitions",
        "Cluster",
        "Topics, settings, users, rules, quotas, views, queues, webhooks, schedules, retry policies and pipelines "
        "as one document, without secrets. What the user may not see is left out.",
        show_definitions,
        {200: DeclaredResponse("The document.", DOCUMENT)},
        needs=(on_cluster("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PUT",
        "/v1/definitions",
        "applyDefinitions",
        "Cluster",
        "Create and change everything that differs from a document. It stops at the first failed step; "
        "the steps before it stay, and so may topics and rules that were created together with it. "
        "The user needs the rights of each step.",
        apply_definitions,
        {200: DeclaredResponse("The steps that were made, or would be.", _STEPS)},
        parameters=(
            query(
                "dry_run",
                {**BOOLEAN, "default": False},
                "Only show the steps, and whether a broker would accept the new topics.",
            ),
            query(
                "prune",
                {**BOOLEAN, "default": False},
                "Also delete entries, and reset settings, that a section of the document does not name. Sections that "
                "the document does not have stay.",
            ),
        ),
        bodies={JSON: DOCUMENT},
        json_max_bytes=DOCUMENT_MAX_BYTES,
        needs=(on_cluster("ALTER"), on_cluster("DESCRIBE_CONFIGS")),
    ),
)
