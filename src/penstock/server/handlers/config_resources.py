"""Check and change of the resources in DescribeConfigs, AlterConfigs and IncrementalAlterConfigs requests."""

from __future__ import annotations

from typing import Any

from penstock.cluster.config_changes import ConfigChange
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from penstock.server.share_readers import checked_group


def check_resource(request: Request, operation: Operation, resource: Any) -> ConfigResourceType:
    """Type of a resource. Raises BrokerError if the type is unknown or the client is not authorized."""
    try:
        kind = ConfigResourceType(resource.resource_type)
    except ValueError:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"resources of type {resource.resource_type} have no settings; use topics, brokers or groups",
        ) from None
    if kind is ConfigResourceType.TOPIC:
        request.require(operation, ResourceType.TOPIC, resource.resource_name)
        source = request.context.metadata.image.views.get(resource.resource_name)
        if source is not None and operation is Operation.ALTER_CONFIGS:
            # A changed filter may show any record of the source to readers of the view.
            request.require(Operation.READ, ResourceType.TOPIC, source)
    elif kind is ConfigResourceType.GROUP:
        request.require(operation, ResourceType.GROUP, resource.resource_name)
    else:
        request.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if kind is ConfigResourceType.CLIENT_METRICS and operation is Operation.ALTER_CONFIGS:
        raise BrokerError(
            ErrorCode.invalid_request, "this broker collects no client metrics; subscriptions cannot be made"
        )
    return kind


async def alter(request: Request, message: Any, changes: list[ConfigChange | BrokerError]) -> Fields:
    """Make the changes of a request, and return the response. An item of `changes` may be an error, which is sent as
    the result of its resource.
    """
    changes = [await checked_group(request.context, each) for each in changes]
    good = [change for change in changes if isinstance(change, ConfigChange)]
    altering = request.context.administration.alter_configs(good, validate_only=message.validate_only)
    outcomes = iter(await carried_out(request, altering, len(good)))
    responses = []
    for resource, change in zip(message.resources, changes, strict=True):
        outcome = change if isinstance(change, BrokerError) else next(outcomes)
        responses.append(
            {
                "error_code": code_of(outcome),
                "error_message": message_of(outcome),
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return {"throttle_time": NO_TIME, "responses": responses}
