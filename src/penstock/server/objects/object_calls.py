"""Calls that all kinds of named objects have: create, describe, change and delete, with their checks of rights.

Rights to an object are rights to the resource that it belongs to: the topic of a schedule, or the queue of a webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.shard import ObjectShard
from penstock.server.objects.served import Arguments, Call
from penstock.server.security import Operation, ResourceType

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

S = TypeVar("S", bound=msgspec.Struct)

_MAX_TOKEN_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class ServedCalls(Generic[S]):
    noun: str
    """Name of the kind in error messages, such as `schedule`."""
    coordinator_of: Callable[[Request], ObjectCoordinator[S]]
    resource_type: ResourceType
    resource_of: Callable[[S], str]
    """Function that returns the name of the resource to which an object belongs."""
    change_operation: Operation
    """Operation on the resource for which a client needs a right to change an object. To see it, a client needs
    DESCRIBE.
    """
    show: Callable[[Request, str, S, ObjectShard[S]], Mapping[str, Any]]
    """Function that describes an object for a client that may see it: takes request, name, state and shard."""

    def shard(self, request: Request, name: str) -> ObjectShard[S]:
        return self.coordinator_of(request).shard_of(name)

    def shows(self, request: Request, state: S) -> bool:
        """True if the client may see the object."""
        return request.shows(Operation.DESCRIBE, self.resource_type, self.resource_of(state))

    def changeable(self, request: Request, name: str) -> ObjectShard[S]:
        """Return the shard of an object. Raises BrokerError if the client may not change the object."""
        return self._require(request, name, self.change_operation)

    def _require(self, request: Request, name: str, operation: Operation) -> ObjectShard[S]:
        """Return the shard of an object. Raises BrokerError if the client lacks the right, or RESOURCE_NOT_FOUND if it
        may not see the object, as if the object did not exist.
        """
        shard = self.shard(request, name)
        shard.check_open()
        known = shard.states.get(name)
        if known is None or not self.shows(request, known):
            raise BrokerError(ErrorCode.resource_not_found, f"there is no {self.noun} {name[:80]!r}")
        request.require(operation, self.resource_type, self.resource_of(known))
        return shard

    async def create(self, request: Request, name: str, state: S, token: str) -> Any:
        """Store a new object and describe it. A repeated request with the same token succeeds."""
        shard = self.shard(request, name)
        known: Any = shard.states.get(name)
        if known is None or not token or known.token != token:
            await shard.create(name, state)
        return await self.describe(request, name)

    async def describe(self, request: Request, name: str, arguments: Arguments | None = None) -> Any:
        shard = self._require(request, name, Operation.DESCRIBE)
        return self.show(request, name, await shard.read(name), shard)

    async def update(self, request: Request, name: str, decide: Callable[[S], S]) -> Any:
        """Replace the state of an object by the one that `decide` returns, and describe the object."""
        await self.changeable(request, name).update(name, decide)
        return await self.describe(request, name)

    def updating(self, decide: Callable[[Request], Callable[[S], S]]) -> Call:
        """Return a call that changes an object with the function that `decide` returns, and that takes no arguments."""

        async def call(request: Request, name: str, arguments: Arguments) -> Any:
            return await self.update(request, name, decide(request))

        return call

    async def delete(self, request: Request, name: str, arguments: Arguments) -> Any:
        await self.changeable(request, name).delete(name)
        return {"name": name}


def token_of(arguments: Arguments) -> str:
    """Return the client's token, by which a repeated request is recognised; empty if there is none."""
    token = arguments.get("token", "")
    if not isinstance(token, str) or len(token) > _MAX_TOKEN_CHARACTERS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"the token must be a string of at most {_MAX_TOKEN_CHARACTERS} characters",
        )
    return token
