"""Whether a client may do what it asks for: the question that handlers of the Kafka protocol put, put here for HTTP.

Every endpoint declares what it needs, and `Front` asks before the handler is called. Operations and kinds of resources
go by Kafka's names; who the client is, is for the one who answers to know. Inside a broker that is its authorizer; a
gateway in a process of its own allows all, and the brokers ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode

Authorize = Callable[[str, str, str, str], bool]
"""Host of the client, operation, kind of the resource, its name."""

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
    """Of the resource, where it is always the same."""
    parameter: str = ""
    """That names the resource, where there is one; nothing is asked where it is not given."""
    field: str = ""
    """Of the body, likewise."""


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
    """BrokerError for the first thing that is not allowed."""
    for need in needs:
        name = need.name or parameters.get(need.parameter) or (need.field and body.get(need.field))
        if name:
            require(authorize, host, need.operation, need.kind, name)


def require(authorize: Authorize, host: str, operation: str, kind: str, name: str) -> None:
    if not authorize(host, operation, kind, name):
        raise BrokerError(_DENIED[kind], f"{operation} {kind} {name[:80]} is not allowed")
