"""Named objects, such as schedules: the cluster stores their states, and one broker does the work of each.

An object has a kind, a name and a state. The states of a kind are the records of one internal compacted topic, with the
name as the key. The leader of the name's partition is the owner of the object: it answers requests about the object
and does its work. After an election the new leader reads the states and continues the work.

How to add a kind:

1. Write the state as a frozen `msgspec.Struct` with pure functions that return the next state. New fields need
   defaults, because stored states of earlier versions do not have them.
2. Write an `Agent`: the work for one object. It changes the state only with `Handle.update`, and does nothing outside
   the broker before `Handle.committed` has returned, because an uncommitted state is lost with its leader.
3. Name the internal topic in `cluster/internal_topics.py`, and choose the next key type for FindCoordinator in
   `wire/object_call.py`.
4. Declare an `ObjectKind`, and in `server/objects/` a `ServedKind` with the calls that clients may make and their
   rights; `ServedCalls` has the calls that all kinds share. Add both to `server/objects/services.py`, which then
   handles start, stop, elections, repair and lists of the new kind.
5. Call it from clients with `internal_client/objects.py`: `call` goes to the owner of a name, `all` asks all brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class Agent(Protocol):
    """Does the work of one object while this broker owns it. Loop thread only."""

    def start(self) -> None:
        """Begin the work: the object was created, or this broker has become its owner."""

    def on_change(self) -> None:
        """Take note of a new state, which may not be committed yet."""

    def close(self) -> None:
        """End all work at once: the object was deleted, or another broker owns it."""


class Handle(Protocol[S]):
    """Access of an agent to its object. Each use raises BrokerError after the broker has lost the object."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> S:
        """Latest state, which may not be committed yet."""

    async def update(self, decide: Callable[[S], S]) -> None:
        """Replace the state by the result of `decide`, and return when the change is committed.

        `decide` is a pure function of the latest state. After an error the change may still be committed later.
        """

    async def committed(self) -> None:
        """Wait until the latest state is committed."""


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[S]):
    name: str
    """Noun for an object of this kind in messages, such as `schedule`."""
    topic: str
    """Internal topic that stores the states."""
    state: type[S]
    make_agent: Callable[[Handle[S]], Agent]
    size_of: Callable[[S], int]
    """Approximate size of a state in bytes."""
    max_objects: int = 10_000
    """Maximum number of objects in a partition of the topic."""
    max_bytes: int = 64 << 20
    """Maximum size of all states in a partition of the topic."""
