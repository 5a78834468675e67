"""Authorization policy of a broker: access control lists, super users, and a cache of decisions.

A cached decision has the bits of all operations that a principal may do on a resource. The cache is cleared
when a rule or the super users change. Its size is limited, because clients choose the names that they ask
for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.security.acl import (
    AccessControlEntry,
    AclBinding,
    Operation,
    Principal,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_index import EVERYTHING, AclIndex

MAX_REMEMBERED = 20_000
"""Maximum number of cached decisions for each resource type. The cache is cleared when it is full."""
MAX_NAME_CHARACTERS = 300
"""Maximum length of a resource name whose decision is cached."""
SAMPLE_NAME = "hardcode"
"""Resource name with which Kafka tests whether a principal may do an operation on every resource."""


class AclPolicy:
    def __init__(self, index: AclIndex, super_users: Collection[str], *, allows_unruled: bool) -> None:
        """`super_users` are principals as text. `allows_unruled` permits everything on resources that no rule
        matches.
        """
        self._index = index
        self._super_users = frozenset(super_users)
        self._allows_unruled = allows_unruled
        self.remembered: list[dict[tuple[Principal, str, str], int]] = [
            {} for _ in range(max(ResourceType) + 1)
        ]
        """Bits of the permitted operations by principal, host and resource name, in a list by resource type.
        `permitted` fills it.
        """
        self._any: dict[tuple[Principal, str, Operation, ResourceType], bool] = {}

    def put(self, resource: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the access control list of a resource pattern."""
        self._index.put(resource, entries)
        self._forget()

    def configure(self, super_users: Collection[str], *, allows_unruled: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allows_unruled = allows_unruled
        self._forget()

    def _forget(self) -> None:
        for remembered in self.remembered:
            remembered.clear()
        self._any.clear()

    def permitted(self, principal: Principal, host: str, kind: ResourceType, name: str) -> int:
        """Bits of the operations that the principal may do on a resource, from the cache if possible."""
        remembered = self.remembered[kind]
        bits = remembered.get((principal, host, name))
        if bits is None:
            bits = self.decide(principal, host, kind, name)
            if len(remembered) >= MAX_REMEMBERED:
                remembered.clear()
            if len(name) <= MAX_NAME_CHARACTERS:
                remembered[principal, host, name] = bits
        return bits

    def decide(self, principal: Principal, host: str, kind: ResourceType, name: str) -> int:
        """Bits of the operations that the principal may do on a resource, without the cache."""
        if self.is_super(principal):
            return EVERYTHING
        verdict = self._index.judge(str(principal), host, kind, name)
        return verdict.permitted(unless_ruled=self._allows_unruled)

    def is_super(self, principal: Principal) -> bool:
        return str(principal) in self._super_users

    def permits_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True if the principal may do the operation on at least one resource of a type (KIP-679)."""
        key = (principal, host, operation, kind)
        found = self._any.get(key)
        if found is None:
            if len(self._any) >= MAX_REMEMBERED:
                self._any.clear()
            on_sample = self.permitted(principal, host, kind, SAMPLE_NAME) >> operation & 1
            found = bool(on_sample) or self._index.may_on_any(str(principal), host, operation, kind)
            self._any[key] = found
        return found

    def deciding_rule(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> AclBinding | None:
        """Rule that decides about an operation; None for a super user, or if no rule matches."""
        if self.is_super(principal):
            return None
        return self._index.deciding_rule(str(principal), host, operation, kind, name)
