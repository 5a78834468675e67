"""Quotas of users, client ids and addresses: describe and alter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.routes import Routes
from penstock.security.quota import DEFAULT, Default, EntityName, QuotaEntity, QuotaKey

_DESCRIBE_CLIENT_QUOTAS = ClientApi(48, 1)
_ALTER_CLIENT_QUOTAS = ClientApi(49, 1)
_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}


class QuotaCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def describe(self) -> dict[QuotaEntity, dict[QuotaKey, float]]:
        """Return all quotas by entity."""
        fields = {"components": (), "strict": False}
        response = await self._routes.at_any(lambda each: _DESCRIBE_CLIENT_QUOTAS.call(each, fields))
        check_error(response.error_code, response.error_message)
        known = {str(key): key for key in QuotaKey}
        return {
            _entity(entry.entity): {known[each.key]: each.value for each in entry.values if each.key in known}
            for entry in response.entries or ()
        }

    async def alter(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        """Set quotas of an entity. A value of None removes the quota."""
        operations = [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in values.items()
        ]
        fields = {"entries": [{"entity": _components(entity), "ops": operations}], "validate_only": False}
        response = await self._routes.at_any(lambda each: _ALTER_CLIENT_QUOTAS.call(each, fields))
        for entry in response.entries:
            check_error(entry.error_code, entry.error_message)


def entity_document(entity: QuotaEntity) -> dict[str, str | None]:
    """Entity as a JSON document, in which null stands for the default entity."""
    names = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    return {
        kind: None if isinstance(name, Default) else name for kind, name in names.items() if name is not None
    }


def read_entity(document: Mapping[str, str | None]) -> QuotaEntity:
    return QuotaEntity(**{kind: DEFAULT if name is None else name for kind, name in document.items()})


def _entity(components: Any) -> QuotaEntity:
    names: dict[str, EntityName] = {
        _FIELDS[each.entity_type]: DEFAULT if each.entity_name is None else each.entity_name
        for each in components
    }
    return QuotaEntity(**names)


def _components(entity: QuotaEntity) -> list[dict[str, str | None]]:
    names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return [
        {"entity_type": kind, "entity_name": None if isinstance(name, Default) else name}
        for kind, name in names.items()
        if name is not None
    ]
