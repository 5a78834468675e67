"""What a consumer group must be: its offsets, its generations, and who reads which partition.

A member holds a partition from the answer that gave it until it gives it up, dies, or its lease ends: the time for
which the coordinator has to count on it, reckoned from its last request that was answered. Nobody else may be given the
partition meanwhile. Within one generation, as far as it was confirmed by a SyncGroup, a partition has one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from penstock.simulation.history import InvariantViolated, Outcome
from penstock.simulation.offset_model import OffsetModel, OffsetWrite, ShownOffset
from penstock.simulation.topic_model import TopicModel


class Protocols(Enum):
    """What the members of a group speak."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    BOTH = "both"


class Place(NamedTuple):
    """A partition of a topic that was deleted is another than that of the next topic of its name."""

    topic: TopicModel
    partition: int

    def __str__(self) -> str:
        return self.topic.partitions[self.partition].name


@dataclass(slots=True, eq=False)
class Lease:
    """What one member holds, and until when nobody else may."""

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
        """Whether a power loss may take back what was confirmed (`durability=os`)."""
        self.generation = 0
        """A generation or epoch that some member was confirmed to be in."""
        self.assigned_partitions: Mapping[str, int] = {}
        """Of which topics, and how many of each, the last leader assigned."""
        self._events = count(1)
        self._offsets: dict[Place, OffsetModel] = {}
        self._deletions: list[OffsetWrite] = []
        self._owners: dict[tuple[int, Place], str] = {}
        self._leases: list[Lease] = []

    def now(self) -> float:
        """The number of an event; later ones are greater."""
        return float(next(self._events))

    # --- offsets

    @property
    def places(self) -> list[Place]:
        return list(self._offsets)

    @property
    def knows_anything(self) -> bool:
        """Whether some commit was confirmed, and is not deleted."""
        return any(model.is_certain for model in self._offsets.values())

    def offset(self, place: Place) -> OffsetModel:
        if place not in self._offsets:
            self._offsets[place] = OffsetModel(f"{self.name}: {place}", self._deletions)
        return self._offsets[place]

    def begin_commit(self, place: Place, offset: int | None, metadata: str) -> OffsetWrite:
        """`offset` is None for a deletion."""
        write = OffsetWrite(offset, metadata, self.now())
        self.offset(place).begin(write)
        return write

    def begin_deletion(self, who: str) -> OffsetWrite:
        """Of the whole group; a new one may begin with any generation."""
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
        """The member was just told that these are its own."""
        for place in places:
            for other in self._leases:
                if other is not lease and place in other.places and seconds < other.ends:
                    message = f"{place} is {lease.owner}'s, but {other.owner} has not given it up"
                    raise self._violation("one owner", message)
            lease.places.add(place)

    def on_generation(self, generation: int, owner: str, places: Iterable[Place]) -> None:
        """A member of the classic protocol was confirmed to be in a generation, with these partitions."""
        if self.protocols is not Protocols.CLASSIC:
            return
        self._move_to(generation, owner)
        for place in places:
            known = self._owners.setdefault((generation, place), owner)
            if known != owner:
                message = f"{place} is {known}'s and {owner}'s in generation {generation}"
                raise self._violation("one owner", message)

    def on_epoch(self, epoch: int, known: int, owner: str) -> None:
        """A member of the new protocol is in an epoch; `known` is its own before, or the group's where it joined."""
        if self.protocols is Protocols.CONSUMER:
            if epoch < min(known, self.generation):
                raise self._violation("generation", f"{owner} is in epoch {epoch}, {known} had begun")
            self.generation = max(self.generation, epoch)

    def check_commit(self, generation: int, known: int, owner: str) -> None:
        """A commit was taken; `known` is the generation that was confirmed when it was sent."""
        if self.protocols is Protocols.CLASSIC and generation < known:
            message = f"a commit of {owner} in generation {generation} was taken, {known} had begun"
            raise self._violation("fencing", message)

    def _move_to(self, generation: int, owner: str) -> None:
        if generation < self.generation and self.knows_anything:
            message = f"{owner} is in generation {generation}, {self.generation} had begun"
            raise self._violation("generation", message)
        self.generation = max(self.generation, generation)

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
        """What was confirmed may be gone: the coordinator need not know its members any more."""
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
