"""Replica assignment under construction, with the steps that change it. Pure. Used by `balance`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.model import BrokerId, TopicPartition

Assignment = Mapping[TopicPartition, tuple[BrokerId, ...]]
"""Replicas of each partition, preferred leader first."""


class NoPlan(PenstockError):
    """The replicas cannot be placed as requested."""


@dataclass(frozen=True, slots=True)
class Location:
    machine: str
    rack: str | None = None


class ReplicaLayout:
    def __init__(self, current: Assignment, brokers: Mapping[BrokerId, Location]) -> None:
        """`brokers` are the brokers that may get replicas. Replicas on other brokers stay unless they are
        moved explicitly.
        """
        self._locations = brokers
        self._replicas = {name: list(current[name]) for name in sorted(current)}
        self._held: dict[BrokerId, dict[TopicPartition, None]] = {broker: {} for broker in sorted(brokers)}
        self._added: dict[BrokerId, dict[TopicPartition, None]] = {broker: {} for broker in self._held}
        """Replicas that the plan has added, by broker. They have no data yet, so placing them elsewhere costs
        nothing.
        """
        self._of_topic: dict[str, Counter[BrokerId]] = {name.topic: Counter() for name in self._replicas}
        for name, replicas in self._replicas.items():
            for broker in replicas:
                self._note(name, broker)

    @property
    def brokers(self) -> Collection[BrokerId]:
        return self._held.keys()

    def assignment(self) -> Assignment:
        return {name: tuple(replicas) for name, replicas in self._replicas.items()}

    def count(self, name: TopicPartition) -> int:
        return len(self._replicas[name])

    def best_for(self, name: TopicPartition, instead_of: BrokerId | None = None) -> BrokerId:
        """Broker most distant from the other replicas of the partition. Among equally distant brokers, the
        one with the fewest replicas. `instead_of` is the replica that it replaces.
        """
        others = [broker for broker in self._replicas[name] if broker != instead_of]
        free = [broker for broker in self._held if broker not in others]
        if not free:
            raise NoPlan(f"{name} would have {len(others) + 1} replicas on {len(self._held)} brokers")
        places = [self._locations[broker] for broker in others if broker in self._locations]
        machines, racks = {place.machine for place in places}, {place.rack for place in places}
        topic = self._of_topic[name.topic]

        def rank(broker: BrokerId) -> tuple[bool, bool, int, int]:
            place = self._locations[broker]
            return place.machine in machines, place.rack in racks, len(self._held[broker]), topic[broker]

        return min(free, key=rank)

    def add(self, name: TopicPartition, broker: BrokerId) -> None:
        self._replicas[name].append(broker)
        self._note(name, broker)
        self._added[broker][name] = None

    def move(self, name: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        replicas = self._replicas[name]
        replicas[replicas.index(source)] = target
        if source in self._held:
            del self._held[source][name]
            self._added[source].pop(name, None)
            self._of_topic[name.topic][source] -= 1
        self._note(name, target)
        self._added[target][name] = None

    def spread(self) -> bool:
        """Move replicas of a partition that share a machine or rack apart where possible. Returns True if any
        was moved.
        """
        moved = [name for name in self._replicas if self._spread_one(name)]
        return bool(moved)

    def _spread_one(self, name: TopicPartition) -> bool:
        for source in reversed(self._replicas[name]):
            if source in self._held:
                target = self.best_for(name, instead_of=source)
                if self._diversity(self._moved(name, source, target)) > self._diversity(self._replicas[name]):
                    self.move(name, source, target)
                    self._spread_one(name)
                    return True
        return False

    def level(self) -> None:
        """Even out the number of replicas per broker with few moves: added replicas first, then each topic,
        then all topics.
        """
        if not self._held:
            return
        while self._level_added():
            pass
        total = sum(map(len, self._held.values()))
        low, high = total // len(self._held), -(-total // len(self._held))
        names: dict[str, list[TopicPartition]] = {}
        for name in self._replicas:
            names.setdefault(name.topic, []).append(name)
        for topic in names:
            while self._level_topic(names[topic], low, high):
                pass
        while self._level_any():
            pass

    def _level_topic(self, names: Sequence[TopicPartition], low: int, high: int) -> bool:
        """Move one replica of the topic from a broker with more than `high` replicas to one with fewer than
        `low`, if that also evens out the topic.
        """
        of_topic = self._of_topic[names[0].topic]
        givers = [broker for broker, held in self._held.items() if len(held) > high]
        takers = [broker for broker, held in self._held.items() if len(held) < low]
        if not givers or not takers:
            return False
        source = max(givers, key=lambda broker: of_topic[broker])
        target = min(takers, key=lambda broker: of_topic[broker])
        if of_topic[source] - of_topic[target] < 2:
            return False
        return self._move_one((name for name in names if name in self._held[source]), source, target)

    def _level_any(self) -> bool:
        """Move one replica to a broker that has at least two fewer. The pair of brokers with the greatest
        difference is tried first.
        """
        order = sorted(self._held, key=lambda broker: len(self._held[broker]))
        pairs = sorted(
            (
                (len(self._held[target]) - len(self._held[source]), source, target)
                for source in reversed(order)
                for target in order
                if len(self._held[source]) - len(self._held[target]) >= 2
            ),
            key=lambda pair: pair[0],
        )
        return any(self._move_one(self._held[source], source, target) for _, source, target in pairs)

    def _level_added(self) -> bool:
        """Move one added replica to a broker that has at least two fewer, directly or through a chain of
        other brokers.
        """
        for giver in sorted(self._held, key=lambda broker: -len(self._held[broker])):
            ways: dict[BrokerId, tuple[BrokerId, TopicPartition] | None] = {giver: None}
            reached = [giver]
            for source in reached:
                for target in self._held.keys() - ways.keys():
                    name = self._movable(self._added[source], source, target)
                    if name is not None:
                        ways[target] = source, name
                        reached.append(target)
            taker = min(reached, key=lambda broker: len(self._held[broker]))
            if len(self._held[giver]) - len(self._held[taker]) >= 2:
                while (way := ways[taker]) is not None:
                    source, name = way
                    self.move(name, source, taker)
                    taker = source
                return True
        return False

    def _move_one(self, names: Iterable[TopicPartition], source: BrokerId, target: BrokerId) -> bool:
        name = self._movable(names, source, target)
        if name is not None:
            self.move(name, source, target)
        return name is not None

    def _movable(
        self, names: Iterable[TopicPartition], source: BrokerId, target: BrokerId
    ) -> TopicPartition | None:
        """First of these partitions whose replica may move from `source` to `target`; None if there is none."""
        taken = self._held[target]
        return next(
            (name for name in names if name not in taken and self._may_move(name, source, target)), None
        )

    def _may_move(self, name: TopicPartition, source: BrokerId, target: BrokerId) -> bool:
        if self._locations[source] == self._locations[target]:
            return True
        return self._diversity(self._moved(name, source, target)) >= self._diversity(self._replicas[name])

    def _moved(self, name: TopicPartition, source: BrokerId, target: BrokerId) -> list[BrokerId]:
        return [target if broker == source else broker for broker in self._replicas[name]]

    def _diversity(self, replicas: Iterable[BrokerId]) -> tuple[int, int]:
        """Number of machines and number of racks that the replicas are on."""
        places = [self._locations[broker] for broker in replicas if broker in self._locations]
        return len({place.machine for place in places}), len({place.rack for place in places})

    def _note(self, name: TopicPartition, broker: BrokerId) -> None:
        if broker in self._held:
            self._held[broker][name] = None
            self._of_topic[name.topic][broker] += 1
