"""Endpoints for declared pipelines: definitions, states and events. `penstock pipeline serve` runs them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.declared.checking import NAMES, check_pipeline
from penstock.declared.definition import topics_in
from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, an_array, an_object
from penstock.internal_client.pipelines import DEFINITIONS, PipelineCalls, StoredPipeline, description
from penstock.net.acting import own_requests

TAG = "Pipelines"
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "maxLength": 100}
_PIPELINE = path("pipeline", _NAME, "The pipeline.")
_DEFINITION = {
    "type": "object",
    "properties": {name: {} for name in NAMES},
    "additionalProperties": True,
    "description": "source, schema, transform, dead_letter, target and schedule, as in the file of "
    "`penstock pipeline apply`.",
}
_SHOWN = an_object(
    {
        "name": STRING,
        "id": STRING,
        "state": STRING,
        "paused": BOOLEAN,
        "revision": INTEGER,
        "definition": {"type": "object", "additionalProperties": True},
        "status": {
            "type": "object",
            "additionalProperties": True,
            "description": "Report of its process: rows, bytes, lag, last success, duration, failures, error.",
        },
    }
)
_EVENTS = an_object({"events": an_array({"type": "object", "additionalProperties": True})})
_READ = RequiredPermission("READ", "TOPIC", DEFINITIONS.name)
_WRITE = RequiredPermission("WRITE", "TOPIC", DEFINITIONS.name)


async def list_pipelines(call: Call) -> Response:
    with own_requests():
        found, statuses = await _calls(call).all(), await _calls(call).statuses()
    return json_response({"pipelines": [description(each, statuses.get(each.name)) for each in found]})


async def describe_pipeline(call: Call) -> Response:
    return await _described(call, await _existing(call))


async def create_pipeline(call: Call) -> Response:
    return await _store(call, dict(call.body))


async def apply_pipeline(call: Call) -> Response:
    document = {**call.body, "name": call.parameters["pipeline"]}
    if call.body.get("name", document["name"]) != document["name"]:
        raise Problem(400, "name differs from the name in the path", error="INVALID_REQUEST", pointer="/name")
    return await _store(call, document)


async def _store(call: Call, document: dict[str, Any]) -> Response:
    problems = check_pipeline(document)
    if problems:
        text = "; ".join(f"{each.pointer or '/'}: {each.text}" for each in problems)
        raise Problem(400, text, error="INVALID_REQUEST", pointer=problems[0].pointer)
    await _require_topics(call, document)
    with own_requests():
        stored, outcome = await _calls(call).put(document)
    return await _described(call, stored, 201 if outcome == "created" else 200)


async def delete_pipeline(call: Call) -> Response:
    pipeline = await _existing(call)
    with own_requests():
        await _calls(call).delete(pipeline.name)
    return Response(status_code=204)


async def pause_pipeline(call: Call) -> Response:
    return await _set_paused(call, True)


async def resume_pipeline(call: Call) -> Response:
    return await _set_paused(call, False)


async def run_pipeline(call: Call) -> Response:
    pipeline = await _existing(call)
    with own_requests():
        stored = await _calls(call).request_run(pipeline)
    return await _described(call, stored, 202)


async def pipeline_logs(call: Call) -> Response:
    pipeline = await _existing(call)
    with own_requests():
        events = await _calls(call).events(pipeline.name, call.parameters["limit"])
    return json_response({"events": events})


async def _set_paused(call: Call, is_paused: bool) -> Response:
    pipeline = await _existing(call)
    with own_requests():
        stored = await _calls(call).set_paused(pipeline, is_paused)
    return await _described(call, stored)


async def _require_topics(call: Call, document: dict[str, Any]) -> None:
    """Raise BrokerError unless the client has rights on the topics that the pipeline reads and writes."""
    for topic in topics_in(document["source"]):
        await call.require("READ", "TOPIC", topic)
    for written in (document["target"].get("topic"), document.get("dead_letter")):
        if written:
            await call.require("WRITE", "TOPIC", written)


def _calls(call: Call) -> PipelineCalls:
    return call.context.backend.pipelines


async def _existing(call: Call) -> StoredPipeline:
    name = call.parameters["pipeline"]
    with own_requests():
        found = await _calls(call).get(name)
    if found is None:
        raise Problem(404, f"there is no pipeline {name!r}; see /v1/pipelines", error="RESOURCE_NOT_FOUND")
    return found


async def _described(call: Call, pipeline: StoredPipeline, status: int = 200) -> Response:
    with own_requests():
        statuses = await _calls(call).statuses()
    return json_response(description(pipeline, statuses.get(pipeline.name)), status)


def _endpoint(
    method: str,
    suffix: str,
    name: str,
    summary: str,
    handler: Any,
    responses: dict[int, DeclaredResponse],
    **more: Any,
) -> Endpoint:
    parameters = (*((_PIPELINE,) if "{pipeline}" in suffix else ()), *more.pop("parameters", ()))
    needs = (_READ,) if method == "GET" else (_READ, _WRITE)
    return Endpoint(
        method,
        f"/v1/pipelines{suffix}",
        name,
        TAG,
        summary,
        handler,
        responses,
        parameters=parameters,
        needs=needs,
        **more,
    )


ENDPOINTS = (
    _endpoint(
        "GET",
        "",
        "listPipelines",
        "All declared pipelines, with their definitions and states.",
        list_pipelines,
        {200: DeclaredResponse("The pipelines.", an_object({"pipelines": an_array(_SHOWN)}))},
    ),
    _endpoint(
        "POST",
        "",
        "createPipeline",
        "Declare a pipeline whose name is in the body, or change its definition. Rights as for PUT.",
        create_pipeline,
        {200: DeclaredResponse("Changed.", _SHOWN), 201: DeclaredResponse("Created.", _SHOWN)},
        bodies={JSON: _DEFINITION},
    ),
    _endpoint(
        "GET",
        "/{pipeline}",
        "describePipeline",
        "A declared pipeline, its definition and state.",
        describe_pipeline,
        {200: DeclaredResponse("The pipeline.", _SHOWN)},
    ),
    _endpoint(
        "PUT",
        "/{pipeline}",
        "applyPipeline",
        "Declare a pipeline, or change its definition. The client also needs READ on the topics that the pipeline "
        "reads, and WRITE on those that it writes.",
        apply_pipeline,
        {200: DeclaredResponse("Changed.", _SHOWN), 201: DeclaredResponse("Created.", _SHOWN)},
        bodies={JSON: _DEFINITION},
    ),
    _endpoint(
        "DELETE",
        "/{pipeline}",
        "deletePipeline",
        "Delete a pipeline. Its targets stay.",
        delete_pipeline,
        {204: DeclaredResponse("Deleted.")},
    ),
    _endpoint(
        "POST",
        "/{pipeline}/pause",
        "pausePipeline",
        "Pause a pipeline: it stops after the batch that is being written.",
        pause_pipeline,
        {200: DeclaredResponse("Paused.", _SHOWN)},
    ),
    _endpoint(
        "POST",
        "/{pipeline}/resume",
        "resumePipeline",
        "Resume a paused pipeline where it stopped.",
        resume_pipeline,
        {200: DeclaredResponse("Resumed.", _SHOWN)},
    ),
    _endpoint(
        "POST",
        "/{pipeline}/run",
        "runPipeline",
        "Run a scheduled pipeline now.",
        run_pipeline,
        {202: DeclaredResponse("Requested.", _SHOWN)},
    ),
    _endpoint(
        "GET",
        "/{pipeline}/logs",
        "pipelineLogs",
        "The last events of a pipeline, oldest first: starts, runs with rows, failures with their reasons.",
        pipeline_logs,
        {200: DeclaredResponse("The events.", _EVENTS)},
        parameters=(
            query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
                "Maximum number of events.",
            ),
        ),
    ),
)
