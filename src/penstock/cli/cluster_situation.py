"""Where every replica of a cluster is and shall be, and how large it is: what plans of moves are made from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.cluster_view import BrokerView, ClusterView, read_view
from penstock.cluster.replica_layout import Assignment, Location
from penstock.model import BrokerId, TopicPartition

DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION = 35, 4
LIST_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS_VERSION = 46, 0
TIMEOUT_MS = 20_000

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


async def read_situation(client: ClusterClient) -> Situation:
    view = await read_view(client)
    answer = await client.ask(
        LIST_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS_VERSION,
        {"timeout": TIMEOUT_MS, "topics": None},
    )
    moving = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in answer.topics
        for partition in topic.partitions
    }
    names = {TopicPartition(partition.topic, partition.index): partition for partition in view.partitions}
    present, assignment = dict[TopicPartition, Replicas](), dict[TopicPartition, Replicas]()
    for name, partition in names.items():
        move = moving.get(name)
        present[name] = _without(partition.replicas, move.adding_replicas if move else ())
        assignment[name] = _without(partition.replicas, move.removing_replicas if move else ())
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
    client: ClusterClient, broker: BrokerView
) -> tuple[BrokerId, dict[TopicPartition, int]]:
    try:
        answer = await client.ask_at(
            broker.address, DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION, {"topics": None}
        )
    except OSError:
        return BrokerId(broker.node_id), {}
    return BrokerId(broker.node_id), {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }
