"""The rules of a consumer group: its offsets, its generations, and the owner of each partition.

A member owns a partition from the response that assigned it until the member gives it up or dies, or its
lease ends: the time for which the coordinator has to count on it, measured from its last request that got
a response. No other member may own the partition meanwhile. Within a generation that was confirmed by
SyncGroup a partition has one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from simulation.models.history import InvariantViolated, Outcome
from simulation.models.offset_model import OffsetModel, OffsetWrite, ShownOffset
from simulation.models.topic_model import TopicModel


class Protocols(Enum):
    """The protocols that the members of a group use."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    BOTH = "both"


class Place(NamedTuple):
    """A partition of one topic; after a deletion the next topic with its name has other places."""

    topic: TopicModel
    partition: int

    def __str__(self) -> str:
        return self.topic.partitions[self.partition].name


@dataclass(slots=True, eq=False)
class Lease:
    """The partitions that a member owns, and the time until which no other member may."""

    owner: str
    ends: float = 0.0
    places: set[Place] = field(default_factory=set)


class GroupModel:
    def __init__(
        self, name: str, protocols: Protocols, topics: Iterable[str], session_ms: int, *, is_weak: bool
    ) -> None:
        self.name = name
        self.protocols = protocols
        self.topics = frozenset(topics)
        self.session_ms = session_ms
        self.is_weak = is_weak
        """Whether a power loss may take back acknowledged commits (`durability=os`)."""
        self.generation = 0
        """The greatest generation or epoch that a member was confirmed to be in."""
        self.assigned_partitions: Mapping[str, int] = {}
        """The topics that the last leader assigned, with their partition counts."""
        self._events = count(1)
        self._offsets: dict[Place, OffsetModel] = {}
        self._deletions: list[OffsetWrite] = []
        self._owners: dict[tuple[int, Place], str] = {}
        self._leases: list[Lease] = []

    def now(self) -> float:
        """Return the number of an event; numbers increase."""
        return float(next(self._events))

    # --- offsets

    @property
    def places(self) -> list[Place]:
        return list(self._offsets)

    @property
    def knows_anything(self) -> bool:
        """Whether a commit was acknowledged and is not deleted."""
        return any(model.is_certain for model in self._offsets.values())

    def offset(self, place: Place) -> OffsetModel:
        if place not in self._offsets:
            self._offsets[place] = OffsetModel(f"{self.name}: {place}", self._deletions)
        return self._offsets[place]

    def begin_commit(self, place: Place, offset: int | None, metadata: str) -> OffsetWrite:
        """Note a commit that is about to be sent; `offset` is None for a deletion."""
        write = OffsetWrite(offset, metadata, self.now())
        self.offset(place).begin(write)
        return write

    def begin_deletion(self, who: str) -> OffsetWrite:
        """Note a deletion of the whole group; a new group may begin with any generation."""
        self._forget_generations()
        write = OffsetWrite(None, who, self.now())
        self._deletions.append(write)
        return write

    def end_deletion(self, write: OffsetWrite, *, done: bool) -> None:
        self._forget_generations()
        if done:
            write.confirm(self.now())
        else:
            write.outcome = Outcome.FAIL

    # --- members

    def lease(self, owner: str) -> Lease:
        lease = Lease(owner)
        self._leases.append(lease)
        return lease

    def end_lease(self, lease: Lease) -> None:
        if lease in self._leases:
            self._leases.remove(lease)

    def take(self, lease: Lease, places: Iterable[Place], seconds: float) -> None:
        """Check and note that the member was assigned these partitions."""
        for place in places:
            for other in self._leases:
                if other is not lease and place in other.places and seconds < other.ends:
                    message = f"{place} is {lease.owner}'s, but {other.owner} has not given it up"
                    raise self._violation("one owner", message)
            lease.places.add(place)

    def on_generation(self, generation: int, owner: str, places: Iterable[Place]) -> None:
        """Check and note that a member of the classic protocol is in a generation, with these partitions."""
        if self.protocols is not Protocols.CLASSIC:
            return
        self._move_to(generation, owner)
        for place in places:
            known = self._owners.setdefault((generation, place), owner)
            if known != owner:
                message = f"{place} is {known}'s and {owner}'s in generation {generation}"
                raise self._violation("one owner", message)

    def on_epoch(self, epoch: int, known: int, owner: str) -> None:
        """Check and note the epoch of a member of the consumer protocol; `known` is its last epoch, or the
        group's where it joined.
        """
        if self.protocols is Protocols.CONSUMER:
            if epoch < min(known, self.generation):
                raise self._violation("generation", f"{owner} is in epoch {epoch}, {known} had begun")
            self.generation = max(self.generation, epoch)

    def check_commit(self, generation: int, known: int, owner: str) -> None:
        """Check the generation of a commit that was accepted; `known` is the generation that was confirmed
        when it was sent.
        """
        if self.protocols is Protocols.CLASSIC and generation < known:
            message = f"a commit of {owner} in generation {generation} was taken, {known} had begun"
            raise self._violation("fencing", message)

    def _move_to(self, generation: int, owner: str) -> None:
        if generation < self.generation:
            if self.knows_anything:
                message = f"{owner} is in generation {generation}, {self.generation} had begun"
                raise self._violation("generation", message)
            self._owners.clear()  # nothing of the group was durable, so it has begun anew
        self.generation = generation

    # --- restarting

    def on_death(self) -> None:
        now = self.now()
        for model in self._offsets.values():
            model.on_restart(now)
        for write in self._deletions:
            write.ended = min(write.ended, now)

    def on_audit(self, place: Place, shown: ShownOffset | None, began: float, *, is_lost: bool) -> None:
        if is_lost:
            self.offset(place).on_loss(shown, self.now())
        else:
            self.offset(place).on_read(shown, began, self.now())

    def on_loss(self) -> None:
        """Allow that acknowledged commits are gone, and that the coordinator does not know its members any
        more.
        """
        self._deletions.clear()
        self._forget_generations()
        self.assigned_partitions = {}
        for lease in self._leases:
            lease.ends = 0.0

    def _forget_generations(self) -> None:
        self.generation = 0
        self._owners.clear()

    def _violation(self, invariant: str, message: str) -> InvariantViolated:
        return InvariantViolated(invariant, f"{self.name}: {message}")
