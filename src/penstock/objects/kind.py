"""Named objects that the cluster stores and that one broker acts for, such as schedules.

An object has a kind, a name and a state. The states of a kind are the records of one internal compacted topic, the name
is the key, and the leader of the name's partition is the owner of the object: the owner answers requests about it and
acts for it. After an election the new leader reads the states and continues.

How to add a kind:

1. Write the state as a frozen `msgspec.Struct` with pure functions that return the next state. New fields need
   defaults, because stored states of earlier versions do not have them.
2. Write an `Agent`: the work for one object. It changes the state only with `Handle.update`, and does nothing outside
   the broker before `Handle.committed` has returned, because an uncommitted state is lost with its leader.
3. Name the internal topic in `cluster/internal_topics.py` and choose the next number of `wire/object_call.py` for
   FindCoordinator.
4. Declare an `ObjectKind`, and in `server/objects/` a `ServedKind` with the calls that clients may make and their
   rights; `ServedCalls` has those that all kinds share. Add both to `server/objects/services.py`: start, stop,
   elections, repair and lists follow from that.
5. Clients use `internal_client/objects.py`: `call` goes to the owner of a name, `all` asks all brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class Agent(Protocol):
    """The work for one object, while this broker owns it. Loop thread only."""

    def start(self) -> None:
        """Begin: the object was created, or this broker has become its owner."""

    def on_change(self) -> None:
        """The state has changed; the change may not be committed yet."""

    def close(self) -> None:
        """End all work at once: the object was deleted, or another broker owns it."""


class Handle(Protocol[S]):
    """Access of an agent to the object that it works for. Raises BrokerError once the agent is closed."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> S:
        """State with all changes, committed or not."""

    async def update(self, decide: Callable[[S], S]) -> None:
        """Replace the state; returns when the change is committed. `decide` gets the present state and is pure.

        After an error the change may be committed later, or the agent is closed.
        """

    async def committed(self) -> None:
        """Wait until the present state is committed."""


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[S]):
    name: str
    """Noun for messages, such as `schedule`."""
    topic: str
    """Internal topic with the states."""
    state: type[S]
    make_agent: Callable[[Handle[S]], Agent]
    size_of: Callable[[S], int]
    """Approximate size of a state in bytes."""
    max_objects: int = 10_000
    """Maximum number of objects in a partition of the topic."""
    max_bytes: int = 64 << 20
    """Maximum size of all states in a partition of the topic."""
