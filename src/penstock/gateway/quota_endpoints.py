"""Endpoints for quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import NUMBER, an_array, an_object
from penstock.security.quota import DEFAULT, Default, EntityName, QuotaEntity, QuotaKey

TAG = "Security"
_NAME = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": 1_000,
    "description": "null is the default.",
}
_ENTITY = an_object({"user": _NAME, "client_id": _NAME, "ip": _NAME}, required=())
_VALUES = an_object({str(key): NUMBER for key in QuotaKey}, required=())
_CHANGES = an_object({str(key): {"type": ["number", "null"]} for key in QuotaKey}, required=())
_LIST = an_object({"quotas": an_array(an_object({"entity": _ENTITY, "values": _VALUES}))})


async def list_quotas(call: Call) -> Response:
    found = await call.context.backend.quotas.describe()
    shown = [
        {"entity": _entity_fields(entity), "values": {str(key): value for key, value in values.items()}}
        for entity, values in found.items()
    ]
    return json_response({"quotas": shown})


async def alter_quotas(call: Call) -> Response:
    names: dict[str, EntityName] = {
        kind: DEFAULT if name is None else name for kind, name in call.body["entity"].items()
    }
    await call.context.backend.quotas.alter(QuotaEntity(**names), call.body["values"])
    return await list_quotas(call)


def _entity_fields(entity: QuotaEntity) -> dict[str, Any]:
    names = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    return {
        kind: None if isinstance(name, Default) else name for kind, name in names.items() if name is not None
    }


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/quotas",
        "listQuotas",
        TAG,
        "Quotas of users, client ids and addresses.",
        list_quotas,
        {200: DeclaredResponse("By entity.", _LIST)},
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
        bodies={JSON: an_object({"entity": _ENTITY, "values": _CHANGES})},
        needs=(on_cluster("ALTER_CONFIGS"),),
    ),
)
