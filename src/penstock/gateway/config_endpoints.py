"""Endpoints for the configs of brokers, and the JSON form of the configs of any resource."""

from __future__ import annotations

from starlette.responses import Response

from penstock.config.resources import ConfigResourceType
from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, PARTITION, STRING, an_array, an_object

TAG = "Cluster"
_CONFIG = an_object(
    {
        "name": STRING,
        "value": {"type": ["string", "null"], "description": "null for a sensitive setting."},
        "default": BOOLEAN,
        "read_only": BOOLEAN,
        "sensitive": BOOLEAN,
        "documentation": STRING,
    }
)
CONFIGS = DeclaredResponse("Ordered by name.", an_object({"configs": an_array(_CONFIG)}))
CONFIG_CHANGES = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 200,
    "additionalProperties": {"type": ["string", "null"], "maxLength": 32_767},
}
_BROKER = path("broker", PARTITION, "The broker's id.")


async def show_configs(call: Call, kind: ConfigResourceType, name: str) -> Response:
    configs = [
        {
            "name": entry.name,
            "value": entry.value,
            "default": entry.is_default,
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
            "documentation": entry.documentation,
        }
        for entry in await call.context.backend.configs.get(kind, name)
    ]
    return json_response({"configs": configs})


async def broker_configs(call: Call) -> Response:
    return await show_configs(call, ConfigResourceType.BROKER, str(call.parameters["broker"]))


async def alter_broker_configs(call: Call) -> Response:
    name = str(call.parameters["broker"])
    await call.context.backend.configs.alter(ConfigResourceType.BROKER, name, call.body)
    return await show_configs(call, ConfigResourceType.BROKER, name)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/brokers/{broker}/configs",
        "brokerConfigs",
        TAG,
        "The settings of a broker.",
        broker_configs,
        {200: CONFIGS},
        parameters=(_BROKER,),
        needs=(on_cluster("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/brokers/{broker}/configs",
        "alterBrokerConfigs",
        TAG,
        "Change dynamic settings of a broker; null returns a setting to its default.",
        alter_broker_configs,
        {200: CONFIGS},
        parameters=(_BROKER,),
        bodies={JSON: CONFIG_CHANGES},
        needs=(on_cluster("ALTER_CONFIGS"),),
    ),
)
