"""Balance of preferred leaders: reorders replicas so that brokers lead equally many partitions. No data
moves. Pure.

Each topic is balanced first, because its partitions share the load. Leaders are then balanced over all topics
as far as no single topic becomes less even.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby, pairwise

from penstock.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]


def level_leaders(
    assignment: Mapping[TopicPartition, Replicas],
    changeable: Iterable[TopicPartition],
    brokers: Collection[BrokerId],
) -> dict[TopicPartition, Replicas]:
    """Assignment with the same replicas in which the partitions in `changeable` may have other preferred
    leaders. Only `brokers` become leaders.
    """
    leveled = dict(assignment)
    may_change = set(changeable)
    topics = {topic: list(names) for topic, names in groupby(sorted(assignment), key=lambda name: name.topic)}
    for names in topics.values():
        leaders = _Leaders({name: leveled[name] for name in names}, may_change, brokers)
        while leaders.level_one():
            pass
        leveled |= leaders.assignment
    leaders = _Leaders(leveled, may_change, brokers)
    while leaders.swap_one():
        pass
    return leaders.assignment


class _Leaders:
    def __init__(
        self,
        assignment: Mapping[TopicPartition, Replicas],
        changeable: Collection[TopicPartition],
        brokers: Collection[BrokerId],
    ) -> None:
        self.assignment = dict(assignment)
        self._led = dict.fromkeys(sorted(brokers), 0)
        self._of_topic: Counter[tuple[str, BrokerId]] = Counter()
        self._offers: dict[BrokerId, dict[BrokerId, dict[TopicPartition, None]]] = {
            broker: {} for broker in self._led
        }
        """Partitions that can be handed over, by their current leader and by the broker that could lead instead."""
        for name, (leader, *_) in self.assignment.items():
            self._of_topic[name.topic, leader] += 1
            if leader in self._led:
                self._led[leader] += 1
            if name in changeable:
                self._offer(name)

    def level_one(self) -> bool:
        """Reduce the uneven distribution by one partition: a broker hands a leadership to a broker that leads
        at least two fewer partitions, directly or through a chain of other brokers. Returns False if there is
        no such pair.
        """
        for giver in sorted(self._led, key=lambda broker: -self._led[broker]):
            chain = self._chain(giver)
            for source, target in pairwise(chain):
                self._hand_over(next(iter(self._offers[source][target])), source, target)
            if chain:
                return True
        return False

    def swap_one(self) -> bool:
        """Hand one leadership directly to a broker that leads at least two fewer partitions in total, and
        fewer partitions of the same topic. Returns False if there is no such pair.
        """
        for source in sorted(self._led, key=lambda broker: -self._led[broker]):
            for target in sorted(self._offers[source], key=lambda broker: self._led[broker]):
                if self._led[source] - self._led[target] < 2:
                    break
                for name in self._offers[source][target]:
                    if self._of_topic[name.topic, source] > self._of_topic[name.topic, target]:
                        self._hand_over(name, source, target)
                        return True
        return False

    def _chain(self, giver: BrokerId) -> list[BrokerId]:
        """Shortest chain of hand-overs from `giver` to the reachable broker that leads the fewest partitions;
        empty if the difference is less than two.
        """
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

    def _hand_over(self, name: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        for offered in self._offers[source].values():
            offered.pop(name, None)
        rest = tuple(broker for broker in self.assignment[name] if broker != target)
        self.assignment[name] = (target, *rest)
        for broker, change in ((source, -1), (target, 1)):
            self._led[broker] += change
            self._of_topic[name.topic, broker] += change
        self._offer(name)

    def _offer(self, name: TopicPartition) -> None:
        leader, *others = self.assignment[name]
        if leader in self._offers:
            for other in others:
                if other in self._led:
                    self._offers[leader].setdefault(other, {})[name] = None
