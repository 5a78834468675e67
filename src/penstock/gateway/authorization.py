"""Authorization of HTTP requests, with the operations and resource types of Kafka's ACLs.

Every endpoint declares the permissions that it needs, and `GatewayApplication` checks them before it calls the
handler. In a gateway inside a broker, the broker's authorizer decides. A stand-alone gateway asks a broker for
decisions (`remote_decisions.py`) if its clients log in; otherwise it allows everything, and brokers authorize the
gateway's own user. Requests that the gateway sends on behalf of a client name the client, and brokers authorize the
client again (`net/acting.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.net.acting import acting_for
from penstock.security.acl import refusal_text

Authorize = Callable[[str, str, str, str], bool]
"""Authorizer: returns True if a request is allowed. The arguments are the client's host, the operation, the
resource type and the resource name; the user is that of the running task.
"""

Check = tuple[str, str, str]
"""Operation, resource type and resource name that a permission is checked for."""
Learn = Callable[[str, Iterable[Check]], Awaitable[None]]
"""Fetches decisions for the client at a host before `Authorize` is called for them. It does nothing if the authorizer
is in this process.
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
    """Name of the resource if it is the same for all requests."""
    parameter: str = ""
    """Parameter with the name of the resource. If a request lacks it, nothing is checked."""
    field: str = ""
    """Field of the request body with the name of the resource. If a request lacks it, nothing is checked."""
    owner: str = ""
    """Parameter or field with the name of the user who owns the messages. This user needs no permission."""


def on_topic(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "TOPIC", parameter="topic")


def on_group(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "GROUP", parameter="group")


def on_cluster(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "CLUSTER", CLUSTER_NAME)


def allow_all(host: str, operation: str, kind: str, name: str) -> bool:
    return True


async def learn_nothing(host: str, checks: Iterable[Check]) -> None:
    """Do nothing, because the authorizer is in this process and needs no fetched decisions."""


def checks_of(
    needs: Iterable[RequiredPermission], parameters: Mapping[str, Any], body: Any
) -> Iterator[Check]:
    """Yield the checks for the permissions in `needs`, with the resource names of the request."""
    for need in needs:
        if need.owner and _is_own(need.owner, parameters, body):
            continue
        name = need.name or parameters.get(need.parameter) or (need.field and body.get(need.field))
        if name:
            yield need.operation, need.kind, name


def _is_own(owner: str, parameters: Mapping[str, Any], body: Any) -> bool:
    actor = acting_for.get()
    given = (parameters.get(owner), body.get(owner) if isinstance(body, dict) else None)
    return actor is not None and {name for name in given if name is not None} == {actor.user}


def require_all(
    authorize: Authorize,
    host: str,
    needs: Iterable[RequiredPermission],
    parameters: Mapping[str, Any],
    body: Any,
    shows: Authorize | None = None,
) -> None:
    """Raise a BrokerError for the first permission that the client lacks.

    If the permission is for a topic in the path and `shows` denies DESCRIBE, the error is that of an unknown topic.
    """
    for need in needs:
        for check in checks_of((need,), parameters, body):
            require(authorize, host, *check, shows if need.parameter else None)


def require(
    authorize: Authorize, host: str, operation: str, kind: str, name: str, shows: Authorize | None = None
) -> None:
    """Raise a BrokerError if the client lacks a permission. If `shows` denies DESCRIBE on a topic, the error is that of
    an unknown topic.
    """
    if authorize(host, operation, kind, name):
        return
    if kind == "TOPIC" and shows is not None and not shows(host, "DESCRIBE", kind, name):
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
    actor = acting_for.get()
    user = "ANONYMOUS" if actor is None else actor.user
    raise BrokerError(_DENIED[kind], refusal_text(f"User:{user}", operation, kind, name))
