"""Encoding of access control lists as nodes of the coordination store: one node for each resource pattern."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cluster import znodes
from penstock.errors import StorageError
from penstock.security.acl import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


def node_name(resource: ResourcePattern) -> str:
    return f"{resource.kind.name}-{resource.pattern.name}-{znodes.quoted(resource.name)}"


def resource_of(name: str) -> ResourcePattern:
    """Resource pattern of a node, from the node's name. Raises StorageError if this version does not know the type."""
    try:
        kind, pattern, quoted = name.split("-", 2)
        return ResourcePattern(ResourceType[kind], znodes.unquoted(quoted), PatternType[pattern])
    except (KeyError, ValueError):
        # A list that is skipped could be one that denies access.
        raise StorageError(
            f"the name of an access control list in the coordination store is not valid: {name[:200]!r}"
        ) from None


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    nodes = (
        znodes.AclNode(each.principal, each.host, each.operation.name, each.permission.name)
        for each in sorted(entries)
    )
    return znodes.encode(znodes.AclsNode(tuple(nodes)))


def decode_acls(data: bytes) -> frozenset[AccessControlEntry]:
    nodes = znodes.decode(data, znodes.AclsNode).entries
    try:
        return frozenset(
            AccessControlEntry(
                each.principal, each.host, Operation[each.operation], Permission[each.permission]
            )
            for each in nodes
        )
    except KeyError as error:
        raise StorageError(
            f"an access control list in the coordination store has the unknown value {error}"
        ) from None
