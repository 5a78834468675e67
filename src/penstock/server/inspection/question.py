"""A question of the Inspect API: its name, the right that the client needs, and the function that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.context import BrokerContext
from penstock.server.security import Operation, ResourceType

Arguments = Mapping[str, Any]
Answer = Callable[[BrokerContext, Arguments], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    operation: Operation
    """Operation for which the client needs a right, on the cluster or on the topic of the question."""
    answer: Answer
    is_for_gateways: bool = False
    """True if only gateways may ask: connections that have proved the cluster secret, or users in `gateway.users`."""
    is_about_topic: bool = False
    """True if the client needs the right on the topic in the argument `topic`; False if on the cluster."""
    about_each_of: ResourceType | None = None
    """Resource type of the names in the argument `names`. Names on which the client does not have the right are removed
    from the argument. None for questions without such names.
    """


def text(arguments: Arguments, name: str, default: str = "") -> str:
    """Return a text argument. Raises BrokerError INVALID_REQUEST if it is not a text."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not a string")
    return value


def texts(arguments: Arguments, name: str) -> list[str]:
    """Return an argument with a list of texts. Raises BrokerError INVALID_REQUEST if it is not a list."""
    value = arguments.get(name, [])
    if not isinstance(value, list):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not a list of strings")
    return value


def integer(arguments: Arguments, name: str, default: int = 0) -> int:
    """Return an integer argument. Raises BrokerError INVALID_REQUEST if it is not an integer."""
    value = arguments.get(name, default)
    if not isinstance(value, int):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not an integer")
    return value
