"""Conversion between access control lists and the fields of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from penstock.config import AuthorizationMode
from penstock.errors import BrokerError, ErrorCode
from penstock.security.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from penstock.server.authorization import mode_of
from penstock.server.dispatch import Fields, Request

ANY = 1
MATCH = 2

E = TypeVar("E", bound=IntEnum)


def check_access(request: Request, operation: Operation) -> None:
    """Raise BrokerError unless authorization is on and the client may do `operation` on the cluster."""
    request.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if mode_of(request.context.config) is AuthorizationMode.OFF:
        raise BrokerError(
            ErrorCode.security_disabled, "authorization is off; set authorization.mode to report or enforce"
        )


def binding_of(creation: Any) -> AclBinding:
    """Rule in a CreateAcls request. Raises BrokerError INVALID_REQUEST for an unknown code."""
    kind = _member(ResourceType, creation.resource_type, "resource type")
    pattern = _member(PatternType, creation.resource_pattern_type, "pattern type")
    operation = _member(Operation, creation.operation, "operation")
    permission = _member(Permission, creation.permission_type, "permission type")
    resource = ResourcePattern(kind, creation.resource_name, pattern)
    return AclBinding(resource, AccessControlEntry(creation.principal, creation.host, operation, permission))


def filter_of(message: Any) -> AclFilter:
    """Filter in a DescribeAcls or DeleteAcls request. Raises BrokerError INVALID_REQUEST for an unknown code."""
    kind_code = message.resource_type_filter
    pattern_code = getattr(message, "pattern_type_filter", PatternType.LITERAL)
    return AclFilter(
        _member_or_any(ResourceType, kind_code, "resource type"),
        message.resource_name_filter,
        None if pattern_code == MATCH else _member_or_any(PatternType, pattern_code, "pattern type"),
        pattern_code == MATCH,
        message.principal_filter,
        message.host_filter,
        _member_or_any(Operation, message.operation, "operation"),
        _member_or_any(Permission, message.permission_type, "permission type"),
    )


def _member_or_any(members: type[E], code: int, what: str) -> E | None:
    return None if code == ANY else _member(members, code, what)


def _member(members: type[E], code: int, what: str) -> E:
    try:
        return members(code)
    except ValueError:
        names = ", ".join(f"{each.name} ({each.value})" for each in members)
        raise BrokerError(
            ErrorCode.invalid_request, f"Invalid {what}: code {code} is not one of {names}"
        ) from None


def resource_fields(found: Mapping[ResourcePattern, Sequence[AccessControlEntry]]) -> list[Fields]:
    """Field `resources` of a DescribeAcls response, sorted."""
    return [
        {
            "resource_type": resource.kind.value,
            "resource_name": resource.name,
            "pattern_type": resource.pattern.value,
            "acls": [_entry_fields(entry) for entry in sorted(entries)],
        }
        for resource, entries in sorted(found.items())
    ]


def matching_fields(deleted: Iterable[AclBinding]) -> list[Fields]:
    """Deleted entries in a DeleteAcls response."""
    return [
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": binding.resource.kind.value,
            "resource_name": binding.resource.name,
            "pattern_type": binding.resource.pattern.value,
            **_entry_fields(binding.entry),
        }
        for binding in deleted
    ]


def _entry_fields(entry: AccessControlEntry) -> Fields:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission_type": entry.permission.value,
    }
