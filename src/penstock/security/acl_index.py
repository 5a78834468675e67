"""Index of access control lists, and the decision of Kafka's standard authorizer. Pure.

A matching deny rule refuses; otherwise a matching allow rule permits (KIP-11, KIP-290). A decision looks up
the literal pattern of the name, the pattern `*`, and the prefixes of the name, one for each length that any
prefix has. All operations on a resource are decided at once, as bits.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from penstock.security.acl import (
    ANY_USER,
    IMPLIED,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

EVERYTHING = sum(1 << operation for operation in Operation)
"""Bits of all operations."""


def _bits(permission: Permission, operation: Operation) -> int:
    """Bits of the operations that an entry allows or denies."""
    if operation is Operation.ALL:
        return EVERYTHING
    implied = IMPLIED.get(operation, ()) if permission is Permission.ALLOW else ()
    return sum(1 << each for each in (operation, *implied))


_BITS = {
    (permission, operation): _bits(permission, operation)
    for permission, operation in product(Permission, Operation)
}


class _Resource:
    """Entries of one resource pattern, combined for each principal and host."""

    __slots__ = ("entries", "pattern", "rights")

    def __init__(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        self.pattern = pattern
        self.entries = entries
        self.rights: dict[tuple[str, str], tuple[int, int]] = {}
        """Bits of the allowed and of the denied operations, by principal and host."""
        for entry in entries:
            key = (entry.principal, entry.host)
            allowed, denied = self.rights.get(key, (0, 0))
            bits = _BITS[entry.permission, entry.operation]
            if entry.permission is Permission.ALLOW:
                allowed |= bits
            else:
                denied |= bits
            self.rights[key] = (allowed, denied)


@dataclass(frozen=True, slots=True)
class AclVerdict:
    """Bits of the operations that rules allow and deny. A deny takes precedence."""

    allowed: int
    denied: int
    has_rules: bool
    """True if any rule, of any principal, matches the resource."""

    def permitted(self, *, unless_ruled: bool) -> int:
        """Bits of the permitted operations. `unless_ruled` permits everything on a resource that no rule matches."""
        if unless_ruled and not self.has_rules:
            return EVERYTHING
        return self.allowed & ~self.denied


class AclIndex:
    def __init__(self, acls: Mapping[ResourcePattern, Iterable[AccessControlEntry]] | None = None) -> None:
        self._resources: dict[PatternType, dict[ResourceType, dict[str, _Resource]]] = {
            pattern: {kind: {} for kind in ResourceType} for pattern in PatternType
        }
        self._lengths: dict[ResourceType, Counter[int]] = {kind: Counter() for kind in ResourceType}
        self._sorted_lengths: dict[ResourceType, list[int]] = {kind: [] for kind in ResourceType}
        """Lengths of the prefixes of each resource type, in ascending order."""
        self._patterns: dict[str, set[ResourcePattern]] = {}
        """Resource patterns that have an entry for a principal, by principal."""
        for resource, entries in (acls or {}).items():
            self.put(resource, entries)

    def put(self, resource: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the entries of a resource pattern. An empty list removes the pattern."""
        resources = self._resources[resource.pattern][resource.kind]
        before = resources.pop(resource.name, None)
        if before is not None:
            self._forget(resource, before)
        after = frozenset(entries)
        if not after:
            return
        resources[resource.name] = _Resource(resource, after)
        for entry in after:
            self._patterns.setdefault(entry.principal, set()).add(resource)
        if resource.pattern is PatternType.PREFIXED:
            length = len(resource.name)
            lengths = self._lengths[resource.kind]
            lengths[length] += 1
            if lengths[length] == 1:
                insort(self._sorted_lengths[resource.kind], length)

    def _forget(self, resource: ResourcePattern, before: _Resource) -> None:
        for principal in {entry.principal for entry in before.entries}:
            patterns = self._patterns[principal]
            patterns.discard(resource)
            if not patterns:
                del self._patterns[principal]
        if resource.pattern is PatternType.PREFIXED:
            length = len(resource.name)
            self._lengths[resource.kind][length] -= 1
            if not self._lengths[resource.kind][length]:
                del self._lengths[resource.kind][length]
                self._sorted_lengths[resource.kind].remove(length)

    def judge(self, principal: str, host: str, kind: ResourceType, name: str) -> AclVerdict:
        """Decide all operations of a principal on a resource."""
        keys = ((principal, host), (principal, WILDCARD), (ANY_USER, host), (ANY_USER, WILDCARD))
        allowed = denied = 0
        has_rules = False
        for resource in self._matching(kind, name):
            has_rules = True
            rights = resource.rights
            for key in keys:
                found = rights.get(key)
                if found is not None:
                    allowed |= found[0]
                    denied |= found[1]
        return AclVerdict(allowed, denied, has_rules)

    def may_on_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if the principal may do the operation on at least one resource of a type, as Kafka decides it
        (KIP-679): an allowed pattern counts unless a denied pattern covers it, and a deny for `*` refuses.
        """
        found: dict[Permission, set[ResourcePattern]] = {each: set() for each in Permission}
        for resource, entry in self._entries_for(principal, host, kind):
            if entry.operation in (operation, Operation.ALL):
                found[entry.permission].add(resource)
        denied, everything = found[Permission.DENY], ResourcePattern(kind, WILDCARD)
        if everything in denied:
            return False
        prefixes = {each.name for each in denied if each.pattern is PatternType.PREFIXED}
        lengths = {len(prefix) for prefix in prefixes}
        return any(
            each == everything
            or (each not in denied and not any(each.name[:size] in prefixes for size in lengths))
            for each in found[Permission.ALLOW]
        )

    def deciding_rule(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> AclBinding | None:
        """Rule that decides: the first matching deny rule in order, else the first allow rule; None if no
        rule matches.
        """
        found: dict[Permission, list[AclBinding]] = {Permission.DENY: [], Permission.ALLOW: []}
        for resource in self._matching(kind, name):
            for entry in resource.entries:
                applies = entry.principal in (principal, ANY_USER) and entry.host in (host, WILDCARD)
                if applies and _BITS[entry.permission, entry.operation] >> operation & 1:
                    found[entry.permission].append(AclBinding(resource.pattern, entry))
        candidates = found[Permission.DENY] or found[Permission.ALLOW]
        return min(candidates, default=None)

    def _matching(self, kind: ResourceType, name: str) -> Iterator[_Resource]:
        """Yield the entries of the resource patterns that match a name."""
        literal = self._resources[PatternType.LITERAL][kind]
        for each in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            if (resource := literal.get(each)) is not None:
                yield resource
        prefixed, length = self._resources[PatternType.PREFIXED][kind], len(name)
        for size in self._sorted_lengths[kind]:
            if size > length:
                return
            if (resource := prefixed.get(name[:size])) is not None:
                yield resource

    def _entries_for(
        self, principal: str, host: str, kind: ResourceType
    ) -> Iterator[tuple[ResourcePattern, AccessControlEntry]]:
        for who in {principal, ANY_USER}:
            for resource in self._patterns.get(who, ()):
                if resource.kind is kind:
                    entries = self._resources[resource.pattern][kind][resource.name].entries
                    for entry in entries:
                        if entry.principal == who and entry.host in (host, WILDCARD):
                            yield resource, entry
