"""Authorization of HTTP requests, with the operations and resource types of Kafka's ACLs.

Every endpoint declares the permissions it needs, and `GatewayApplication` checks them before it calls the
handler. Inside a broker the broker's authorizer decides; a gateway in a process of its own allows everything,
and brokers decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode

Authorize = Callable[[str, str, str, str], bool]
"""Decides from the client's host, an operation, a resource type and a resource name whether a request is
allowed.
"""

CLUSTER_NAME = "kafka-cluster"
_DENIED = {
    "TOPIC": ErrorCode.topic_authorization_failed,
    "GROUP": ErrorCode.group_authorization_failed,
    "CLUSTER": ErrorCode.cluster_authorization_failed,
    "TRANSACTIONAL_ID": ErrorCode.transactional_id_authorization_failed,
}


@dataclass(frozen=True, slots=True)
class RequiredPermission:
    operation: str
    kind: str
    name: str = ""
    """Name of the resource, where it is always the same."""
    parameter: str = ""
    """Parameter that names the resource; nothing is checked where it is absent."""
    field: str = ""
    """Field of the request body that names the resource; nothing is checked where it is absent."""


def on_topic(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "TOPIC", parameter="topic")


def on_group(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "GROUP", parameter="group")


def on_cluster(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "CLUSTER", CLUSTER_NAME)


def allow_all(host: str, operation: str, kind: str, name: str) -> bool:
    return True


def require_all(
    authorize: Authorize,
    host: str,
    needs: Iterable[RequiredPermission],
    parameters: Mapping[str, Any],
    body: Any,
) -> None:
    """Raise a BrokerError for the first permission that the client lacks."""
    for need in needs:
        name = need.name or parameters.get(need.parameter) or (need.field and body.get(need.field))
        if name:
            require(authorize, host, need.operation, need.kind, name)


def require(authorize: Authorize, host: str, operation: str, kind: str, name: str) -> None:
    if not authorize(host, operation, kind, name):
        raise BrokerError(_DENIED[kind], f"{operation} {kind} {name[:80]} is not allowed")
