"""Authorization: the check that every handler makes before it acts.

`AllowAll` is in force while authorization is off, `AclAuthorizer` otherwise (`server/authorization.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.security.acl import CLUSTER_NAME as CLUSTER_NAME
from penstock.security.acl import SUPPORTED_OPERATIONS as SUPPORTED_OPERATIONS
from penstock.security.acl import Operation as Operation
from penstock.security.acl import Principal as Principal
from penstock.security.acl import ResourceType as ResourceType
from penstock.security.acl import refusal_text

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


DENIED: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


class Authorizer:
    """Decisions about the rights of principals. This base class allows everything."""

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Decide about a request; a refusal is recorded."""
        return True

    def shows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Decide whether a list includes something, or which operations are shown; nothing is recorded."""
        return self.authorize(principal, host, operation, kind, name)

    def has_right(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Decide by the rules, in mode `report` too, without a record: the first of two rights that would do."""
        return self.authorize(principal, host, operation, kind, name)

    def has_right_on_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Decide by the rules whether the principal may do this on at least one resource of a type (KIP-679)."""
        return self.has_right(principal, host, operation, kind, "any")


class AllowAll(Authorizer):
    pass


def require(
    authorizer: Authorizer, caller: Caller, operation: Operation, kind: ResourceType, name: str
) -> None:
    """Raise BrokerError unless the caller may do this."""
    principal = caller.principal
    if not authorizer.authorize(principal, caller.host, operation, kind, name):
        raise refusal(principal, operation, kind, name)


def refusal(principal: Principal, operation: Operation, kind: ResourceType, name: str) -> BrokerError:
    """Error for a request without the right; names the command that gives the right."""
    return BrokerError(DENIED[kind], refusal_text(str(principal), operation.name, kind.name, name))
