"""Writer of partition counts and of the phases of partitions that are being removed, on any broker. Loop
thread only.

Each change is decided from the image and written on condition of it (`ChangeMaker`); `shrinking` has the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple, TypeGuard

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


class Advance(NamedTuple):
    """Next phase of a partition, decided by its leader from the state with this partition epoch."""

    name: TopicPartition
    partition_epoch: int
    phase: PartitionPhase


class PartitionRemoval(NamedTuple):
    """Request of a partition's leader, in this leader epoch, to remove the partition."""

    name: TopicPartition
    leader_epoch: LeaderEpoch
    log_end: Callable[[PartitionState], Offset | None]
    """Function that returns the log end offset for the recorded state of the partition, or None to keep the
    partition.
    """


class PartitionCounts:
    def __init__(self, metadata: ClusterMetadata, changes: ChangeMaker, clock: Clock) -> None:
        self._metadata = metadata
        self._changes = changes
        self._clock = clock

    async def set(self, wanted: WantedCount, *, validate_only: bool = False) -> TopicImage:
        """Change the number of active partitions and return the topic with the new phases. BrokerError if the
        change is refused.
        """

        def decide(image: ClusterImage) -> MetadataChange[TopicImage]:
            topic = shrinking.plan_count(image, wanted, self._metadata.config, self._clock.now_ms())
            return MetadataChange(topic) if validate_only else shrinking.change_count(image, topic)

        return await self._changes.make(decide)

    async def advance(self, wanted: Sequence[Advance]) -> None:
        """Write the next phases of partitions, as their leader, in one write.

        A partition whose state has changed since the decision is left alone: the change may have been taken back and
        repeated meanwhile, with other records and transactions in the log.
        """

        def decide(image: ClusterImage) -> MetadataChange[None]:
            writes, now_ms = PartitionWrites(), self._clock.now_ms()
            for each in wanted:
                state = image.partition(each.name)
                if is_unchanged(state, each):
                    writes.set(each.name, shrinking.with_phase(state, each.phase, now_ms))
            return MetadataChange(None, Writes(tuple(writes.operations)), writes.scope)

        await self._changes.make(decide)

    async def remove(self, wanted: Sequence[PartitionRemoval]) -> Set[TopicPartition]:
        """Remove the last partitions of topics, as their leader, in one write. Returns the removed partitions."""

        def decide(image: ClusterImage) -> MetadataChange[Set[TopicPartition]]:
            ends: dict[TopicPartition, Offset] = {}
            for each in wanted:
                state = image.partition(each.name)
                end = each.log_end(state) if _is_led(state, each.leader_epoch) else None
                if end is not None:
                    ends[each.name] = end
            return shrinking.removal(image, ends)

        return await self._changes.make(decide)


def is_unchanged(state: PartitionState | None, wanted: Advance) -> TypeGuard[PartitionState]:
    """True if the phase was decided from this state."""
    return state is not None and state.partition_epoch == wanted.partition_epoch


def _is_led(state: PartitionState | None, leader_epoch: LeaderEpoch) -> TypeGuard[PartitionState]:
    """True if the caller still leads the partition in this leader epoch."""
    return state is not None and state.leader_epoch == leader_epoch
