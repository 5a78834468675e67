"""Endpoints for quotas of users, client ids and addresses."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import NUMBER, an_array, an_object
from penstock.internal_client.quotas import entity_document, read_entity
from penstock.security.quota import QuotaKey

TAG = "Security"
NAME = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": 1_000,
    "description": "null is the default.",
}
ENTITY = an_object({"user": NAME, "client_id": NAME, "ip": NAME}, required=())
VALUES = an_object({str(key): NUMBER for key in QuotaKey}, required=())
_CHANGES = an_object({str(key): {"type": ["number", "null"]} for key in QuotaKey}, required=())
_LIST = an_object({"quotas": an_array(an_object({"entity": ENTITY, "values": VALUES}))})


async def list_quotas(call: Call) -> Response:
    found = await call.context.backend.quotas.describe()
    shown = [
        {"entity": entity_document(entity), "values": {str(key): value for key, value in values.items()}}
        for entity, values in found.items()
    ]
    return json_response({"quotas": shown})


async def alter_quotas(call: Call) -> Response:
    await call.context.backend.quotas.alter(read_entity(call.body["entity"]), call.body["values"])
    return await list_quotas(call)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/quotas",
        "listQuotas",
        TAG,
        "Quotas of users, client ids and addresses.",
        list_quotas,
        {200: DeclaredResponse("The quotas, ordered by entity.", _LIST)},
        needs=(on_cluster("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/quotas",
        "alterQuotas",
        TAG,
        "Set quotas of an entity; null removes a quota.",
        alter_quotas,
        {200: DeclaredResponse("All quotas.", _LIST)},
        bodies={JSON: an_object({"entity": ENTITY, "values": _CHANGES})},
        needs=(on_cluster("ALTER_CONFIGS"),),
    ),
)
