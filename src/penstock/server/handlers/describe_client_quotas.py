"""DescribeClientQuotas: quotas of the entities that match a filter (KIP-546)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.security.quota import Default, EntityName, QuotaEntity
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.quota_fields import entity_fields, field_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

EXACT, DEFAULT_ONLY, SPECIFIED = 0, 1, 2


def handle(request: Request, message: Any) -> Fields:
    fields: Fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "error_message": None,
        "entries": None,
    }
    try:
        request.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        wanted = _components(message)
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error)}
    found = {
        entity: stored.values
        for entity, stored in request.context.image.quotas.items()
        if stored.values and _matches(entity, wanted, is_strict=message.strict)
    }
    entries = [
        {
            "entity": entity_fields(entity),
            "values": [{"key": str(key), "value": value} for key, value in sorted(values.items())],
        }
        for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
    ]
    return {**fields, "entries": entries}


API = Api(48, 0, 1, handle)


def _components(message: Any) -> dict[str, tuple[int, str | None]]:
    """Match type and name of each filter component, by the field of `QuotaEntity`."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in message.components:
        name = field_of(component.entity_type)
        if name in wanted:
            raise BrokerError(
                ErrorCode.invalid_request, f"the entity type {component.entity_type!r} is in the filter twice"
            )
        if component.match_type not in (EXACT, DEFAULT_ONLY, SPECIFIED):
            raise BrokerError(ErrorCode.invalid_request, f"Unknown match type {component.match_type}")
        if (component.match_type == EXACT) != (component.match is not None):
            raise BrokerError(
                ErrorCode.invalid_request,
                "a filter with an exact match needs a name, and other filters must not have one",
            )
        wanted[name] = (component.match_type, component.match)
    if "ip" in wanted and len(wanted) > 1:
        raise BrokerError(
            ErrorCode.invalid_request, "an address cannot be combined with a user or a client id"
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: dict[str, tuple[int, str | None]], *, is_strict: bool) -> bool:
    names: dict[str, EntityName | None] = {
        "user": entity.user,
        "client_id": entity.client_id,
        "ip": entity.ip,
    }
    for field, (match_type, match) in wanted.items():
        name = names.pop(field)
        is_default = isinstance(name, Default)
        if name is None or (match_type == DEFAULT_ONLY) > is_default:
            return False
        if match_type == EXACT and (is_default or name != match):
            return False
    return not is_strict or all(name is None for name in names.values())
