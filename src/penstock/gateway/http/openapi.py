"""OpenAPI 3.1 document, generated from the declarations of the endpoints that are served."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from penstock.gateway.http.endpoint import DeclaredResponse, Endpoint, Parameter
from penstock.gateway.http.problems import CONTENT_TYPE
from penstock.gateway.http.request_parts import is_absent_when_empty
from penstock.gateway.http.schema import Schema, with_absent
from penstock.gateway.http.shared_schemas import PROBLEM

_ABOUT = (
    "Messages to users (/send and /receive) and everything about topics, messages, groups and the cluster (/v1). "
    "Errors are problem documents (RFC 9457) that carry Kafka's name of the error."
)


def make_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock HTTP gateway", "version": version("penstock"), "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": {"Problem": PROBLEM}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {str(status): _response(response) for status, response in endpoint.responses.items()},
    }
    operation["responses"]["default"] = {
        "description": "A problem.",
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if endpoint.socket_messages:
        operation["x-websocket-messages"] = {
            sender: with_absent(schema) if sender == "client" else schema
            for sender, schema in endpoint.socket_messages.items()
        }
    if endpoint.bodies:
        operation["requestBody"] = {
            "required": endpoint.is_body_required,
            "content": {
                kind: {} if schema is None else {"schema": with_absent(schema)}
                for kind, schema in endpoint.bodies.items()
            },
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.doc,
        "schema": _parameter_schema(parameter),
    }


def _parameter_schema(parameter: Parameter) -> Schema:
    if not is_absent_when_empty(parameter):
        return parameter.schema
    return {"anyOf": [parameter.schema, {"const": ""}]}


def _response(response: DeclaredResponse) -> dict[str, Any]:
    described: dict[str, Any] = {"description": response.doc}
    if response.schema is not None:
        described["content"] = {response.content_type: {"schema": response.schema}}
    return described
