"""Access control lists: describe, create, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from penstock.errors import BrokerError
from penstock.internal_client.api import ClientApi, check_error, error_of
from penstock.internal_client.routes import Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.security.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_DESCRIBE_ACLS = ClientApi(29, 3)
_CREATE_ACLS = ClientApi(30, 3)
_DELETE_ACLS = ClientApi(31, 3)
_ANY, _MATCH = 1, 2
RULES_PER_REQUEST = 5_000


class AclCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def describe(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the rules that match a filter, in order."""
        fields = _filter_fields(wanted)
        response = await self._routes.at_any(lambda each: _DESCRIBE_ACLS.call(each, fields))
        check_error(response.error_code, response.error_message)
        return sorted(_binding(resource, acl) for resource in response.resources for acl in resource.acls)

    async def create(self, rules: Sequence[AclBinding]) -> None:
        """Create rules. Raises the first error."""
        for error in await self.create_each(rules):
            if error is not None:
                raise error

    async def create_each(self, rules: Sequence[AclBinding]) -> list[BrokerError | None]:
        """Create rules. Returns None or the error for each rule, in order."""
        outcomes: list[BrokerError | None] = []
        for start in range(0, len(rules), RULES_PER_REQUEST):
            fields = {"creations": [_creation(rule) for rule in rules[start : start + RULES_PER_REQUEST]]}
            response = await self._routes.at_any(partial(_call, _CREATE_ACLS, fields))
            outcomes += [error_of(each.error_code, each.error_message) for each in response.results]
        return outcomes

    async def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete the rules that match any of the filters, and return the deleted rules."""
        fields = {"filters": [_filter_fields(each) for each in filters]}
        response = await self._routes.at_any(lambda each: _DELETE_ACLS.call(each, fields))
        deleted: set[AclBinding] = set()
        for result in response.filter_results:
            check_error(result.error_code, result.error_message)
            deleted.update(_binding(acl, acl) for acl in result.matching_acls)
        return sorted(deleted)


def _call(api: ClientApi, fields: dict[str, Any], connection: BrokerConnection) -> Awaitable[Any]:
    return api.call(connection, fields)


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    pattern = _MATCH if wanted.is_match else wanted.pattern or _ANY
    return {
        "resource_type_filter": int(wanted.kind or _ANY),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation or _ANY),
        "permission_type": int(wanted.permission or _ANY),
    }


def _creation(rule: AclBinding) -> dict[str, Any]:
    resource, entry = rule.resource, rule.entry
    return {
        "resource_type": int(resource.kind),
        "resource_name": resource.name,
        "resource_pattern_type": int(resource.pattern),
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _binding(resource: Any, acl: Any) -> AclBinding:
    pattern = ResourcePattern(
        ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
    )
    entry = AccessControlEntry(
        acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)
    )
    return AclBinding(pattern, entry)
