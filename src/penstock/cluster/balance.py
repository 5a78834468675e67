"""Which replicas move when a cluster grows, shrinks or loses a broker: a plan from what is to what shall be. Pure.

No broker holds two replicas of a partition. Replicas go to another machine, and another rack, where there is one, and
no move brings replicas of a partition closer together. Beyond that as few replicas move as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cluster.leader_balance import level_leaders
from penstock.cluster.replica_layout import Assignment, Location, ReplicaLayout
from penstock.model import BrokerId, TopicPartition


def plan_balance(
    current: Assignment, brokers: Mapping[BrokerId, Location], replication_factor: int = 1
) -> Assignment:
    """Spread evenly over these brokers, with at least so many replicas of each partition.

    A replica on a broker that is not among them stays: it may come back.
    """
    layout = ReplicaLayout(current, brokers)
    for name in current:
        while layout.count(name) < replication_factor:
            layout.add(name, layout.best_for(name))
    layout.spread()
    layout.level()
    while layout.spread():  # where brokers hold equally many, there may be room that was not
        layout.level()
    return level_leaders(layout.assignment(), current.keys(), brokers.keys())


def plan_drain(current: Assignment, brokers: Mapping[BrokerId, Location], leaving: BrokerId) -> Assignment:
    """Without a broker; nothing moves but what it holds."""
    layout, concerned = _without(current, brokers, leaving)
    for name in concerned:
        layout.move(name, leaving, layout.best_for(name, instead_of=leaving))
    return level_leaders(layout.assignment(), concerned, layout.brokers)


def plan_replacement(
    current: Assignment, brokers: Mapping[BrokerId, Location], lost: BrokerId, new: BrokerId
) -> Assignment:
    """With a broker in place of another; where it holds a replica already, with any other."""
    layout, concerned = _without(current, brokers, lost)
    for name in concerned:
        is_there = new in current[name]
        layout.move(name, lost, layout.best_for(name, instead_of=lost) if is_there else new)
    return layout.assignment()


def differences(current: Assignment, planned: Assignment) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The new replicas of what is planned and changes, in the order of the names."""
    return {name: planned[name] for name in sorted(planned) if planned[name] != current[name]}


def _without(
    current: Assignment, brokers: Mapping[BrokerId, Location], lost: BrokerId
) -> tuple[ReplicaLayout, Iterable[TopicPartition]]:
    staying = {broker: place for broker, place in brokers.items() if broker != lost}
    return ReplicaLayout(current, staying), [name for name in sorted(current) if lost in current[name]]
