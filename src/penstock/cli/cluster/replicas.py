"""Replicas of a cluster with their sizes, before and after the reassignments in progress: the input of reassignment
plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.cli.cluster.view import BrokerView, ClusterSnapshot, read_view
from penstock.cluster.replica_layout import Assignment, Location
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class ClusterReplicas:
    view: ClusterSnapshot
    present: Assignment
    """Replicas of each partition, without replicas that a reassignment is adding."""
    assignment: Assignment
    """Replicas of each partition after the reassignments in progress are complete."""
    reassigning: frozenset[TopicPartition]
    """Partitions with a reassignment in progress."""
    sizes: Mapping[TopicPartition, Mapping[BrokerId, int]]
    """Size of each replica in bytes; without replicas on brokers that do not respond."""
    leaders: Mapping[TopicPartition, int]

    @property
    def locations(self) -> dict[BrokerId, Location]:
        """Locations of the live brokers. Brokers with the same advertised host count as one machine."""
        return {
            BrokerId(broker.node_id): Location(broker.address.host, broker.rack)
            for broker in self.view.brokers.values()
        }

    @property
    def movable(self) -> Assignment:
        """Assignment of the partitions with a live leader; other partitions cannot be copied."""
        return {
            name: replicas
            for name, replicas in self.assignment.items()
            if self.leaders[name] in self.view.brokers
        }

    def held_by(self, node_id: int | None) -> list[TopicPartition]:
        """Return the partitions with a replica on a broker; an empty list for None."""
        return [name for name, replicas in self.assignment.items() if node_id in replicas]

    def size_of(self, name: TopicPartition) -> int:
        """Return the size of the largest replica in bytes, which other replicas have to reach."""
        return max(self.sizes.get(name, {}).values(), default=0)

    def missing_bytes(self, name: TopicPartition, replicas: Replicas) -> int:
        """Return the number of bytes still to copy until all given replicas are complete."""
        held, size = self.sizes.get(name, {}), self.size_of(name)
        return sum(max(0, size - held.get(broker, 0)) for broker in replicas)


async def read_replicas(client: InternalClient) -> ClusterReplicas:
    view = await read_view(client)
    reassigning = await client.reassignments.all()
    names = {TopicPartition(partition.topic, partition.index): partition for partition in view.partitions}
    present, assignment = dict[TopicPartition, Replicas](), dict[TopicPartition, Replicas]()
    for name, partition in names.items():
        change = reassigning.get(name)
        present[name] = _without(partition.replicas, change.adding if change else ())
        assignment[name] = _without(partition.replicas, change.removing if change else ())
    sizes: dict[TopicPartition, dict[BrokerId, int]] = {}
    for broker, held in await asyncio.gather(*(_read_sizes(client, each) for each in view.brokers.values())):
        for name, size in held.items():
            sizes.setdefault(name, {})[broker] = size
    leaders = {name: partition.leader for name, partition in names.items()}
    return ClusterReplicas(view, present, assignment, frozenset(reassigning), sizes, leaders)


def _without(replicas: Iterable[int], others: Iterable[int]) -> Replicas:
    removed = set(others)
    return tuple(BrokerId(broker) for broker in replicas if broker not in removed)


async def _read_sizes(
    client: InternalClient, broker: BrokerView
) -> tuple[BrokerId, dict[TopicPartition, int]]:
    node_id = BrokerId(broker.node_id)
    try:
        log_dirs = await client.brokers.log_dirs(node_id)
    except OSError:
        return node_id, {}
    return node_id, {name: size for each in log_dirs for name, size in each.sizes.items()}
