"""A kind of named objects as brokers serve it: the calls that clients may make, with their rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.objects.coordinator import ObjectCoordinator

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

Arguments = Mapping[str, Any]
Call = Callable[["Request", str, Arguments], Awaitable[Any]]
"""Function that serves a call for the object with a name on its owner: checks rights, acts and returns the answer."""


@dataclass(frozen=True, slots=True)
class ServedKind:
    coordinator: ObjectCoordinator[Any]
    calls: Mapping[str, Call]
    """Functions by verb. BrokerError is sent to the client; the arguments are not checked before."""
    changes: frozenset[str]
    """Verbs that change something, for the audit log."""
    entry: Callable[[Request, str, Any], Mapping[str, Any] | None]
    """Entry of an object with a name and a state in a list; None if the client may not see the object."""
