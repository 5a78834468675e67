"""A question of the Inspect API: its name, the permission that it needs, and the function that answers it."""

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
    """Operation that the client needs, on the cluster or on the topic of the question."""
    answer: Answer
    is_for_gateways: bool = False
    """Whether the question is reserved for gateways that have proved their identity."""
    is_about_topic: bool = False
    """Whether the client needs the operation on the topic in the argument `topic`, and not on the cluster."""
    about_each_of: ResourceType | None = None
    """Resource type of the argument `names`, for a question that is answered for those names on which the client has
    the operation; the others are removed from the argument.
    """


def text(arguments: Arguments, name: str, default: str = "") -> str:
    """Return a text argument; INVALID_REQUEST for anything else."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not a text")
    return value


def texts(arguments: Arguments, name: str) -> list[str]:
    """Return an argument with a list of texts; INVALID_REQUEST for anything else."""
    value = arguments.get(name, [])
    if not isinstance(value, list):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not a list of texts")
    return value


def integer(arguments: Arguments, name: str, default: int = 0) -> int:
    """Return an integer argument; INVALID_REQUEST for anything else."""
    value = arguments.get(name, default)
    if not isinstance(value, int):
        raise BrokerError(ErrorCode.invalid_request, f"the argument {name} is not an integer")
    return value
