"""Cluster metadata of one broker: the live brokers, and every partition with its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config import Address
from penstock.internal_client.client import InternalClient

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerView:
    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerView]
    partitions: tuple[PartitionView, ...]


async def read_view(client: InternalClient) -> ClusterSnapshot:
    topics = await client.topics.all()
    routes = client.routes
    brokers = {
        int(node_id): BrokerView(int(node_id), broker.address, broker.rack)
        for node_id, broker in routes.brokers.items()
    }
    partitions = [
        PartitionView(topic.name, index, partition.leader, partition.replicas, partition.in_sync)
        for topic in topics
        for index, partition in enumerate(topic.partitions)
    ]
    return ClusterSnapshot(routes.cluster_id, int(routes.controller), brokers, tuple(partitions))
