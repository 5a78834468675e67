"""Which replica of a partition leads, so that brokers lead equally many: an order of replicas, no data moves. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise

from penstock.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]


def level_leaders(
    assignment: Mapping[TopicPartition, Replicas],
    changeable: Iterable[TopicPartition],
    brokers: Iterable[BrokerId],
) -> dict[TopicPartition, Replicas]:
    """The same replicas, with other preferred leaders among `changeable` where that evens out who leads how many.

    Only `brokers` are made leaders. Few partitions change: leadership is handed on along the shortest chain of brokers.
    """
    leaders = _Leaders(assignment, changeable, brokers)
    while leaders.level_one():
        pass
    return leaders.assignment


class _Leaders:
    def __init__(
        self,
        assignment: Mapping[TopicPartition, Replicas],
        changeable: Iterable[TopicPartition],
        brokers: Iterable[BrokerId],
    ) -> None:
        self.assignment = dict(assignment)
        self._led = dict.fromkeys(sorted(brokers), 0)
        for replicas in assignment.values():
            if replicas[0] in self._led:
                self._led[replicas[0]] += 1
        self._offers: dict[BrokerId, dict[BrokerId, dict[TopicPartition, None]]] = {
            broker: {} for broker in self._led
        }
        """What a broker leads that another could lead."""
        for name in sorted(changeable):
            self._offer(name)

    def level_one(self) -> bool:
        """Hand one leadership from a broker to one that leads at least two fewer, directly or through others."""
        for giver in sorted(self._led, key=lambda broker: -self._led[broker]):
            chain = self._chain(giver)
            if chain:
                for source, target in pairwise(chain):
                    self._hand_over(source, target)
                self._led[chain[0]] -= 1
                self._led[chain[-1]] += 1
                return True
        return False

    def _chain(self, giver: BrokerId) -> list[BrokerId]:
        """The shortest way to the broker that leads least, of those it is worth it for."""
        came_from: dict[BrokerId, BrokerId | None] = {giver: None}
        waiting = deque([giver])
        while waiting:
            broker = waiting.popleft()
            for other, offered in self._offers[broker].items():
                if offered and other not in came_from:
                    came_from[other] = broker
                    waiting.append(other)
        taker = min(came_from, key=lambda broker: self._led[broker])
        if self._led[giver] - self._led[taker] < 2:
            return []
        chain: list[BrokerId] = []
        step: BrokerId | None = taker
        while step is not None:
            chain.append(step)
            step = came_from[step]
        return chain[::-1]

    def _hand_over(self, source: BrokerId, target: BrokerId) -> None:
        name = next(iter(self._offers[source][target]))
        for offered in self._offers[source].values():
            offered.pop(name, None)
        replicas = self.assignment[name]
        rest = tuple(broker for broker in replicas if broker != target)
        self.assignment[name] = (target, *rest)
        self._offer(name)

    def _offer(self, name: TopicPartition) -> None:
        leader, *others = self.assignment[name]
        if leader in self._offers:
            for other in others:
                if other in self._led:
                    self._offers[leader].setdefault(other, {})[name] = None
