"""Authorization: the check that every handler makes before it serves a request.

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
"""Principal of a connection that has proved the cluster secret (a broker, or the gateway in a broker), and of requests
that a gateway with a user in `gateway.users` sends for itself. No user can have it, because users have the principal
type `User`.
"""


@dataclass(frozen=True, slots=True)
class Login:
    """Completed login of a client."""

    user: str
    credential: str = ""
    """Credential of the user's account at the login; empty if the client used an OAuth token."""
    expires_ms: int | None = None
    """Time at which the OAuth token expires, in milliseconds since the epoch; None if it does not expire."""


class Caller(Protocol):
    """Client whose rights decide about a request."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """Client on whose behalf a gateway sent a request."""

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
        """Return True if the request is allowed; a refusal is recorded."""
        return True

    def shows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Return True if a list may include the resource, or the operation is among the authorized ones; nothing is
        recorded.
        """
        return self.authorize(principal, host, operation, kind, name)

    def has_right(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Return True if the access control lists grant the right, even in mode `report`; nothing is recorded. Used for
        the first of two rights if either of them allows the request: then only a lack of both is recorded.
        """
        return self.authorize(principal, host, operation, kind, name)

    def has_right_on_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Return True if the access control lists allow the operation on any resource of the type (KIP-679)."""
        return self.has_right(principal, host, operation, kind, "any")


class AllowAll(Authorizer):
    pass


def require(
    authorizer: Authorizer, caller: Caller, operation: Operation, kind: ResourceType, name: str
) -> None:
    """Raise BrokerError unless the caller may do `operation` on the resource."""
    principal = caller.principal
    if not authorizer.authorize(principal, caller.host, operation, kind, name):
        raise refusal(principal, operation, kind, name)


def refusal(principal: Principal, operation: Operation, kind: ResourceType, name: str) -> BrokerError:
    """Error for a request without the right. Its message has the command that grants the right."""
    return BrokerError(DENIED[kind], refusal_text(str(principal), operation.name, kind.name, name))
