"""Authorization: the check that every handler makes before it acts.

The default authorizer allows everything; users and ACLs plug in here without a change to any handler.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode


@dataclass(frozen=True, slots=True)
class Principal:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
BROKER = Principal("Broker", "penstock-broker")
"""Principal of a connection that has proved the cluster secret (a broker, or the gateway in a broker), and of the
own requests of a gateway with a user in `gateway.users`. No user can have it: users have the kind `User`.
"""


@dataclass(frozen=True, slots=True)
class Login:
    """Completed login of a client."""

    user: str
    credential: str = ""
    """Credential of the user's account; empty for a token of an issuer."""
    expires_ms: int | None = None
    """Time at which the token expires."""


class Caller(Protocol):
    """Client whose rights decide about a request."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """Client that a gateway has named in a request."""

    principal: Principal
    host: str


class Operation(IntEnum):
    """AclOperation of Kafka, with its codes: bit positions of the authorized-operations fields."""

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
    """ResourceType of Kafka, with its codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"

DENIED: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}

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


class Authorizer(Protocol):
    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool: ...


def require(
    authorizer: Authorizer, caller: Caller, operation: Operation, kind: ResourceType, name: str
) -> None:
    """Raise BrokerError unless the caller may do this."""
    principal = caller.principal
    if not authorizer.authorize(principal, caller.host, operation, kind, name):
        raise BrokerError(DENIED[kind], f"{principal} may not {operation.name} {kind.name} {name}")


class AllowAll:
    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return True
