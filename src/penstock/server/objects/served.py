"""A kind of named objects as brokers serve it: the calls that clients may make, with their checks of rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.objects.coordinator import ObjectCoordinator

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

Arguments = Mapping[str, Any]
Call = Callable[["Request", str, Arguments], Awaitable[Any]]
"""Function that serves a call at the owner of an object: takes request, object name and arguments, checks rights and
returns the answer.
"""


@dataclass(frozen=True, slots=True)
class ServedKind:
    coordinator: ObjectCoordinator[Any]
    calls: Mapping[str, Call]
    """Call of each verb. It has to check its arguments itself; a BrokerError is sent to the client."""
    changes: frozenset[str]
    """Verbs of calls that the audit log records as changes."""
    entry: Callable[[Request, str, Any], Mapping[str, Any] | None]
    """Function that returns the entry of an object in a list: takes request, name and state. It returns None if the
    client may not see the object.
    """
