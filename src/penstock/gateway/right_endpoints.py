"""Endpoint for the rights of the user that asks, so that programs can omit actions that would be denied."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import STRING, an_array, an_object
from penstock.security.acl import SUPPORTED_OPERATIONS, ResourceType

_NAME = {"type": "string", "minLength": 1, "maxLength": 1_000}


async def own_rights(call: Call) -> Response:
    kind, name = call.parameters["resource_type"], call.parameters["name"]
    operations = [each.name for each in SUPPORTED_OPERATIONS[ResourceType[kind]]]
    for operation in operations:
        await call.learn(operation, kind, (name,))
    allowed = [operation for operation in operations if call.allows(operation, kind, name)]
    return json_response({"allowed": allowed})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/rights",
        "ownRights",
        "Security",
        "The operations on a resource that the user of this request may do.",
        own_rights,
        {
            200: DeclaredResponse(
                "The operations.",
                an_object({"allowed": an_array(STRING)}),
            )
        },
        parameters=(
            query(
                "resource_type",
                {"type": "string", "enum": [each.name for each in ResourceType]},
                "The resource type.",
                required=True,
            ),
            query("name", _NAME, "The resource name; `kafka-cluster` for the cluster.", required=True),
        ),
    ),
)
