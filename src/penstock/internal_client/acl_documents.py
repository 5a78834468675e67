"""Rules of access control lists as JSON documents, the same for HTTP and for definitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.security.acl import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


def read_rule(given: Mapping[str, Any]) -> AclBinding:
    pattern = PatternType[given.get("pattern", PatternType.LITERAL.name)]
    permission = Permission[given.get("permission", Permission.ALLOW.name)]
    resource = ResourcePattern(ResourceType[given["resource_type"]], given["name"], pattern)
    operation = Operation[given["operation"]]
    return AclBinding(
        resource, AccessControlEntry(given["principal"], given.get("host", "*"), operation, permission)
    )


def show_rule(rule: AclBinding) -> dict[str, str]:
    return {
        "principal": rule.entry.principal,
        "operation": rule.entry.operation.name,
        "resource_type": rule.resource.kind.name,
        "name": rule.resource.name,
        "pattern": rule.resource.pattern.name,
        "host": rule.entry.host,
        "permission": rule.entry.permission.name,
    }
