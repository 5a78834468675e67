"""ListConfigResources: resources with settings. The response to version 0 is empty, because it lists only client
metrics subscriptions, which this broker does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.config.resources import ConfigResourceType
from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

BROKER_LOGGER = 8
KNOWN_TYPES = frozenset({*map(int, ConfigResourceType), BROKER_LOGGER})


def handle(request: Request, message: Any) -> Fields:
    types = set(getattr(message, "resource_types", [ConfigResourceType.CLIENT_METRICS])) or KNOWN_TYPES
    code, resources = ErrorCode.none, []
    if not request.allowed(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.cluster_authorization_failed
    elif not types <= KNOWN_TYPES:
        code = ErrorCode.unsupported_version
    else:
        resources = [resource for resource in _resources(request) if resource["resource_type"] in types]
    return {"throttle_time": NO_TIME, "error_code": code, "config_resources": resources}


API = Api(74, 0, 1, handle)


def _resources(request: Request) -> Iterator[Fields]:
    image = request.context.image
    names = {
        ConfigResourceType.TOPIC: list(image.topics),
        ConfigResourceType.BROKER: [str(broker_id) for broker_id in image.brokers],
        ConfigResourceType.GROUP: list(image.group_configs),
    }
    for kind, known in names.items():
        for name in known:
            yield {"resource_name": name, "resource_type": int(kind)}
