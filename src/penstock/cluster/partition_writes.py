"""Collector of new partition states for one metadata change: its operations and its scope."""

from __future__ import annotations

from penstock.cluster import znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.coordination import Operation, Set
from penstock.cluster.image import PartitionState
from penstock.cluster.loading import encode_partition
from penstock.model import TopicPartition


class PartitionWrites:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._touched: dict[str, list[int]] = {}

    def set(self, name: TopicPartition, state: PartitionState) -> None:
        """Write the state, on condition that the partition epoch is the one that the state was computed from."""
        path = znodes.partition_path(name.topic, name.partition)
        self.operations.append(Set(path, encode_partition(state), state.partition_epoch))
        self._touched.setdefault(name.topic, []).append(name.partition)

    @property
    def scope(self) -> Scope:
        return Scope(partitions={topic: tuple(indexes) for topic, indexes in self._touched.items()})
