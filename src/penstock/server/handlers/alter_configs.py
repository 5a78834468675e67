"""AlterConfigs, the older API: the given settings replace all settings of the resource."""

from __future__ import annotations

from typing import Any

from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.errors import BrokerError
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.config_resources import alter, check_resource
from penstock.server.security import Operation


async def handle(request: Request, message: Any) -> Fields:
    return await alter(request, message, [_change(request, resource) for resource in message.resources])


API = Api(33, 0, 2, handle)


def _change(request: Request, resource: Any) -> ConfigChange | BrokerError:
    try:
        kind = check_resource(request, Operation.ALTER_CONFIGS, resource)
    except BrokerError as error:
        return error
    alterations = [ConfigAlteration(config.name, config.value) for config in resource.configs]
    return ConfigChange(kind, resource.resource_name, alterations, replaces=True)
