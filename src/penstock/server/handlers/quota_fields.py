"""Conversion between quota entities and the fields of DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.security.quota import DEFAULT, Default, EntityName, QuotaEntity
from penstock.server.dispatch import Fields

_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}


def field_of(entity_type: str) -> str:
    """Field of `QuotaEntity` for Kafka's entity type. Raises BrokerError INVALID_REQUEST for an unknown type."""
    if entity_type not in _FIELDS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"Unsupported entity type {entity_type[:40]!r}; give {', '.join(_FIELDS)}",
        )
    return _FIELDS[entity_type]


def entity_of(components: Iterable[Any]) -> QuotaEntity:
    """Quota entity in an AlterClientQuotas request; a null name means the default entity."""
    names: dict[str, EntityName] = {}
    for component in components:
        field = field_of(component.entity_type)
        if field in names:
            raise BrokerError(
                ErrorCode.invalid_request, f"the entity has the type {component.entity_type!r} twice"
            )
        names[field] = DEFAULT if component.entity_name is None else component.entity_name
    return QuotaEntity(**names)


def entity_fields(entity: QuotaEntity) -> list[Fields]:
    names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return [
        {"entity_type": kind, "entity_name": None if isinstance(name, Default) else name}
        for kind, name in names.items()
        if name is not None
    ]
