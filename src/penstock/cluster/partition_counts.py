"""Writer of partition counts and of the phases of partitions that go, on any broker. Loop thread only.

Each change is decided from the image and written on condition of it (`ChangeMaker`); `shrinking` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from penstock.clock import Clock
from penstock.cluster import shrinking
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.image import ClusterImage, PartitionPhase, PartitionState, TopicImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.partition_writes import PartitionWrites
from penstock.cluster.shrinking import WantedCount
from penstock.cluster.topic_writes import Writes
from penstock.model import LeaderEpoch, Offset, TopicPartition


class PartitionCounts:
    def __init__(self, metadata: ClusterMetadata, changes: ChangeMaker, clock: Clock) -> None:
        self._metadata = metadata
        self._changes = changes
        self._clock = clock

    async def set(self, wanted: WantedCount, *, validate_only: bool = False) -> TopicImage:
        """Change the number of active partitions; the topic with the new phases. BrokerError if it is refused."""

        def decide(image: ClusterImage) -> MetadataChange[TopicImage]:
            topic = shrinking.plan_count(image, wanted, self._metadata.config, self._clock.now_ms())
            return MetadataChange(topic) if validate_only else shrinking.change_count(image, topic)

        return await self._changes.make(decide)

    async def advance(self, name: TopicPartition, leader_epoch: LeaderEpoch, phase: PartitionPhase) -> bool:
        """Write the next phase of a partition, as its leader in this leader epoch; false if another broker leads it or
        its phase has changed.
        """

        def decide(image: ClusterImage) -> MetadataChange[bool]:
            state = image.partition(name)
            if not _is_led(state, leader_epoch) or state.phase != phase - 1:
                return MetadataChange(False)
            writes = PartitionWrites()
            writes.set(name, shrinking.with_phase(state, phase, self._clock.now_ms()))
            return MetadataChange(True, Writes(tuple(writes.operations)), writes.scope)

        return await self._changes.make(decide)

    async def remove(
        self, name: TopicPartition, leader_epoch: LeaderEpoch, log_end: Callable[[], Offset | None]
    ) -> bool:
        """Remove the last partition of a topic, as its leader. `log_end` returns the end of its log, or None to keep
        the partition.
        """

        def decide(image: ClusterImage) -> MetadataChange[bool]:
            end = log_end() if _is_led(image.partition(name), leader_epoch) else None
            return MetadataChange(False) if end is None else shrinking.removal(image, name, end)

        return await self._changes.make(decide)


def _is_led(state: PartitionState | None, leader_epoch: LeaderEpoch) -> TypeGuard[PartitionState]:
    """Whether the caller still leads the partition, in this leader epoch."""
    return state is not None and state.leader_epoch == leader_epoch
