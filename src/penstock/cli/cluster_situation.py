"""Where every replica of a cluster is and shall be, and how large it is: what plans of moves are made from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.cli.cluster_view import BrokerView, ClusterView, read_view
from penstock.cluster.replica_layout import Assignment, Location
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    view: ClusterView
    present: Assignment
    """The replicas of each partition without those that a move is adding."""
    assignment: Assignment
    """The replicas of each partition once the moves that are under way have come to their end."""
    moving: frozenset[TopicPartition]
    sizes: Mapping[TopicPartition, Mapping[BrokerId, int]]
    """Bytes of each replica, as far as its broker answers."""
    leaders: Mapping[TopicPartition, int]

    @property
    def locations(self) -> dict[BrokerId, Location]:
        """Of the brokers that are there. Those with the same advertised host are taken to share a machine."""
        return {
            BrokerId(broker.node_id): Location(broker.address.host, broker.rack)
            for broker in self.view.brokers.values()
        }

    def size_of(self, name: TopicPartition) -> int:
        """Of its largest replica: the others have as much to copy."""
        return max(self.sizes.get(name, {}).values(), default=0)

    def missing_bytes(self, name: TopicPartition, replicas: tuple[BrokerId, ...]) -> int:
        """How much is still to be copied until all of these have the partition."""
        held, size = self.sizes.get(name, {}), self.size_of(name)
        return sum(max(0, size - held.get(broker, 0)) for broker in replicas)


async def read_situation(client: InternalClient) -> Situation:
    view = await read_view(client)
    moving = await client.reassignments.all()
    names = {TopicPartition(partition.topic, partition.index): partition for partition in view.partitions}
    present, assignment = dict[TopicPartition, Replicas](), dict[TopicPartition, Replicas]()
    for name, partition in names.items():
        move = moving.get(name)
        present[name] = _without(partition.replicas, move.adding if move else ())
        assignment[name] = _without(partition.replicas, move.removing if move else ())
    sizes: dict[TopicPartition, dict[BrokerId, int]] = {}
    for broker, held in await asyncio.gather(*(_read_sizes(client, each) for each in view.brokers.values())):
        for name, size in held.items():
            sizes.setdefault(name, {})[broker] = size
    leaders = {name: partition.leader for name, partition in names.items()}
    return Situation(view, present, assignment, frozenset(moving), sizes, leaders)


def _without(replicas: Iterable[int], others: Iterable[int]) -> Replicas:
    gone = set(others)
    return tuple(BrokerId(broker) for broker in replicas if broker not in gone)


async def _read_sizes(
    client: InternalClient, broker: BrokerView
) -> tuple[BrokerId, dict[TopicPartition, int]]:
    node_id = BrokerId(broker.node_id)
    try:
        log_dirs = await client.brokers.log_dirs(node_id)
    except OSError:
        return node_id, {}
    return node_id, {name: size for each in log_dirs for name, size in each.sizes.items()}
