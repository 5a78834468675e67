"""A cluster as one of its brokers shows it: the brokers that are there, and every partition with its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cli.cluster_client import ClusterClient
from penstock.config import Address

METADATA = 3
METADATA_VERSION = 12
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
class ClusterView:
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerView]
    partitions: tuple[PartitionView, ...]


async def read_view(client: ClusterClient) -> ClusterView:
    answer = await client.ask(
        METADATA,
        METADATA_VERSION,
        {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    )
    brokers = {
        int(broker.node_id): BrokerView(int(broker.node_id), Address(broker.host, broker.port), broker.rack)
        for broker in answer.brokers
    }
    partitions = [
        PartitionView(
            topic.name,
            partition.partition_index,
            int(partition.leader_id),
            tuple(map(int, partition.replica_nodes)),
            tuple(map(int, partition.isr_nodes)),
        )
        for topic in answer.topics
        for partition in topic.partitions
    ]
    return ClusterView(
        answer.cluster_id or "",
        int(answer.controller_id),
        brokers,
        tuple(sorted(partitions, key=lambda partition: (partition.topic, partition.index))),
    )
