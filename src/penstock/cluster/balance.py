"""Plans of replica assignments when brokers are added, removed or lost. Pure.

A broker has at most one replica of a partition. Replicas of a partition are on different machines and racks
if there are enough, and no step of a plan reduces that. Within these rules as few replicas as possible are
reassigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cluster.leader_balance import level_leaders
from penstock.cluster.replica_layout import Assignment, Location, ReplicaLayout
from penstock.model import BrokerId, TopicPartition


def plan_balance(
    current: Assignment, brokers: Mapping[BrokerId, Location], replication_factor: int = 1
) -> Assignment:
    """Spread replicas evenly over these brokers, with at least `replication_factor` replicas of each
    partition.

    A replica on any other broker stays, because that broker may return.
    """
    layout = ReplicaLayout(current, brokers)
    for name in current:
        while layout.count(name) < replication_factor:
            layout.add(name, layout.best_for(name))
    layout.spread()
    layout.level()
    while layout.spread():  # leveling may have made room on other machines or racks
        layout.level()
    return level_leaders(layout.assignment(), current.keys(), brokers.keys())


def plan_drain(current: Assignment, brokers: Mapping[BrokerId, Location], leaving: BrokerId) -> Assignment:
    """Reassign all replicas of the broker `leaving`. Other replicas stay."""
    layout, concerned = _without(current, brokers, leaving)
    for name in concerned:
        layout.move(name, leaving, layout.best_for(name, instead_of=leaving))
    return level_leaders(layout.assignment(), concerned, layout.brokers)


def plan_replacement(
    current: Assignment, brokers: Mapping[BrokerId, Location], lost: BrokerId, new: BrokerId
) -> Assignment:
    """Replace a lost broker by a new one. If the new broker already has a replica of a partition, that
    partition gets a replica on any other broker.
    """
    layout, concerned = _without(current, brokers, lost)
    for name in concerned:
        is_there = new in current[name]
        layout.move(name, lost, layout.best_for(name, instead_of=lost) if is_there else new)
    return layout.assignment()


def differences(current: Assignment, planned: Assignment) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """New replicas of the partitions whose assignment changes, ordered by partition name."""
    return {name: planned[name] for name in sorted(planned) if planned[name] != current[name]}


def _without(
    current: Assignment, brokers: Mapping[BrokerId, Location], lost: BrokerId
) -> tuple[ReplicaLayout, Iterable[TopicPartition]]:
    staying = {broker: place for broker, place in brokers.items() if broker != lost}
    return ReplicaLayout(current, staying), [name for name in sorted(current) if lost in current[name]]
