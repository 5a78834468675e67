"""Access control lists: Kafka's operations, resource patterns, entries and filters as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
"""Resource name or host that stands for all names or hosts."""
ANY_USER = "User:*"


class Operation(IntEnum):
    """Kafka's AclOperation, with its codes, which are also bit positions in the authorized-operations fields."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ResourceType, with its codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternType(IntEnum):
    """Kafka's PatternType, with its codes."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType, with its codes."""

    DENY = 2
    ALLOW = 3


_TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
_GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: _GROUP_OPERATIONS,
    ResourceType.CLUSTER: _CLUSTER_OPERATIONS,
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}

IMPLIED: dict[Operation, tuple[Operation, ...]] = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}
"""Operations that allowing another operation also allows. Denying an operation implies no other one."""


@dataclass(frozen=True, slots=True)
class Principal:
    kind: str
    name: str

    def __hash__(self) -> int:
        # Faster than the hash of both fields. Every request looks up decisions by its principal.
        return hash(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """Pattern for resources of one type: a single name, all names with a prefix, or (literal `*`) all names."""

    kind: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        if self.kind is ResourceType.CLUSTER:
            return "cluster"
        kind = "transactional-id" if self.kind is ResourceType.TRANSACTIONAL_ID else self.kind.name.lower()
        return f"{kind}:{self.name}{WILDCARD if self.pattern is PatternType.PREFIXED else ''}"


@dataclass(frozen=True, slots=True, order=True)
class AccessControlEntry:
    """Rule of a resource pattern: allows or denies one operation to one principal, from one host or all hosts."""

    principal: str
    """Principal as `User:name`; `User:*` stands for all principals."""
    host: str
    """Address of the client; `*` stands for all addresses."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        host = "" if self.host == WILDCARD else f" from host {self.host}"
        return f"{self.permission.name} {self.principal} {self.operation.name}{host}"


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """Access control entry, with the resource pattern that it belongs to."""

    resource: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.resource}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Filter of DescribeAcls and DeleteAcls. A field that is None matches everything."""

    kind: ResourceType | None = None
    name: str | None = None
    pattern: PatternType | None = None
    is_match: bool = False
    """True for Kafka's pattern type MATCH, which selects all patterns that apply to the resource `name`."""
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    @property
    def names_nothing(self) -> bool:
        """True if the filter matches every rule."""
        return self == AclFilter(is_match=self.is_match)

    def matches_resource(self, resource: ResourcePattern) -> bool:
        if self.kind not in (None, resource.kind) or self.pattern not in (None, resource.pattern):
            return False
        if self.name is None:
            return True
        return resource.matches(self.name) if self.is_match else resource.name == self.name

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (None, entry.operation)
            and self.permission in (None, entry.permission)
        )

    def among(self, entries: Iterable[AccessControlEntry]) -> list[AccessControlEntry]:
        return [entry for entry in entries if self.matches_entry(entry)]


def refusal_text(principal: str, operation: str, kind: str, name: str) -> str:
    """Text of a refusal: the principal, the operation, the resource, and the command that permits it."""
    resource = (
        "cluster" if kind == ResourceType.CLUSTER.name else f"{kind.lower().replace('_', '-')}:{name[:80]}"
    )
    user = principal.partition(":")[2][:80]
    return (
        f"{principal[:80]} may not {operation} {resource}; `penstock acl allow {user} {operation.lower()} {resource}` "
        "permits it"
    )
