"""Authorization of HTTP requests, with the operations and resource types of Kafka's ACLs.

Every endpoint declares the permissions it needs, and `GatewayApplication` checks them before it calls the
handler. Inside a broker the broker's authorizer decides. A gateway in a process of its own asks a broker for
decisions (`remote_decisions.py`) if its clients log in; otherwise it allows everything, and brokers authorize the
gateway's own user. Requests on behalf of a client name it, so that brokers authorize it once more (`net/acting.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.net.acting import acting_for
from penstock.security.acl import refusal_text

Authorize = Callable[[str, str, str, str], bool]
"""Decides from the client's host, an operation, a resource type and a resource name whether a request is
allowed.
"""

Check = tuple[str, str, str]
"""Operation, resource type and resource name of a decision."""
Learn = Callable[[str, Iterable[Check]], Awaitable[None]]
"""Fetches the decisions about a host's client, so that `Authorize` has them; a no-op where it decides itself."""

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
    owner: str = ""
    """Parameter or field with the name of a user who needs no permission: messages of a user are its own."""


def on_topic(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "TOPIC", parameter="topic")


def on_group(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "GROUP", parameter="group")


def on_cluster(operation: str) -> RequiredPermission:
    return RequiredPermission(operation, "CLUSTER", CLUSTER_NAME)


def allow_all(host: str, operation: str, kind: str, name: str) -> bool:
    return True


async def learn_nothing(host: str, checks: Iterable[Check]) -> None:
    """Do nothing: the authorizer of this process decides."""


def checks_of(
    needs: Iterable[RequiredPermission], parameters: Mapping[str, Any], body: Any
) -> Iterator[Check]:
    """The decisions that the permissions of a request need."""
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
    """Raise a BrokerError for the first permission that the client lacks. A topic in the path that `shows` hides does
    not exist for the client.
    """
    for need in needs:
        for check in checks_of((need,), parameters, body):
            require(authorize, host, *check, shows if need.parameter else None)


def require(
    authorize: Authorize, host: str, operation: str, kind: str, name: str, shows: Authorize | None = None
) -> None:
    """Raise a BrokerError where the client lacks a permission. A topic that `shows` hides does not exist."""
    if authorize(host, operation, kind, name):
        return
    if kind == "TOPIC" and shows is not None and not shows(host, "DESCRIBE", kind, name):
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
    actor = acting_for.get()
    user = "ANONYMOUS" if actor is None else actor.user
    raise BrokerError(_DENIED[kind], refusal_text(f"User:{user}", operation, kind, name))
