"""Placement of the replicas of new partitions. Pure.

Replicas of a partition are on different brokers. Two of them share a machine only if no other machine is
left, and they are on as many racks as that allows. Leaders are spread evenly, replicas nearly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.cluster.image import RegisteredBroker
from penstock.model import BrokerId


def place_replicas(
    brokers: Sequence[RegisteredBroker], partitions: int, replication_factor: int, first: int
) -> list[tuple[BrokerId, ...]]:
    """Replicas of each partition, preferred leader first. `first` is the broker index at which the rotation
    starts.
    """
    if not 0 < replication_factor <= len(brokers):
        raise ValueError(f"{replication_factor} replicas need as many brokers; there are {len(brokers)}")
    order = sorted(brokers, key=lambda broker: broker.node_id)
    held: Counter[BrokerId] = Counter()
    placed = []
    for index in range(partitions):
        turn = (first + index) % len(order)
        replicas = _place_one([*order[turn:], *order[:turn]], replication_factor, held)
        held.update(replicas)
        placed.append(tuple(replicas))
    return placed


def _place_one(candidates: Sequence[RegisteredBroker], count: int, held: Counter[BrokerId]) -> list[BrokerId]:
    """Brokers for one partition: the first candidate as leader, then repeatedly the broker most distant from
    the chosen ones and, among equally distant brokers, the least loaded.
    """
    chosen = [candidates[0]]
    while len(chosen) < count:
        machines = {broker.machine_id for broker in chosen}
        racks = {broker.rack for broker in chosen}
        chosen.append(
            min(
                (broker for broker in candidates if broker not in chosen),
                key=lambda broker: (
                    broker.machine_id in machines,
                    broker.rack in racks,
                    held[broker.node_id],
                ),
            )
        )
    return [broker.node_id for broker in chosen]
