"""Partition fields of Metadata and DescribeTopicPartitions, from the cluster image."""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState
from penstock.errors import ErrorCode


def partition_fields(image: ClusterImage, index: int, partition: PartitionState) -> dict[str, Any]:
    has_leader = partition.leader in image.brokers
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": partition.leader if has_leader else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": tuple(replica for replica in partition.replicas if replica not in image.brokers),
    }
