"""Which brokers hold the replicas of new partitions. Pure; the controller asks it.

No two replicas of a partition share a broker; two share a machine only when no other machine is free, and
racks are spread where that leaves a choice. Leaders are dealt out evenly, replicas nearly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.cluster.image import RegisteredBroker
from penstock.model import BrokerId


def place_replicas(
    brokers: Sequence[RegisteredBroker], partitions: int, replication_factor: int, first: int
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition, the preferred leader first; `first` says where dealing begins."""
    if not 0 < replication_factor <= len(brokers):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(brokers)} brokers")
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
    """The first candidate leads; then always the most distant one, and of those the least loaded."""
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
