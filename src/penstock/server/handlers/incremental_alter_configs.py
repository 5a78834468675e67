"""IncrementalAlterConfigs: change settings one by one (KIP-339)."""

from __future__ import annotations

from typing import Any

from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.config.resources import ConfigOperation
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.config_resources import alter, check_resource
from penstock.server.security import Operation


async def handle(request: Request, message: Any) -> Fields:
    return await alter(request, message, [_change(request, resource) for resource in message.resources])


API = Api(44, 0, 1, handle)


def _change(request: Request, resource: Any) -> ConfigChange | BrokerError:
    try:
        kind = check_resource(request, Operation.ALTER_CONFIGS, resource)
        alterations = [_alteration(config) for config in resource.configs]
    except BrokerError as error:
        return error
    return ConfigChange(kind, resource.resource_name, alterations)


def _alteration(config: Any) -> ConfigAlteration:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise BrokerError(
            ErrorCode.invalid_request, f"unknown config operation {config.config_operation}"
        ) from None
    return ConfigAlteration(config.name, config.value, operation)
