"""Eligible leaders (KIP-966): replicas outside the in-sync set that have every committed record. Pure.

A replica that leaves the in-sync set has every record that is committed at that time. It stays complete while
nothing more can be committed: while the partition has no leader, or while its leader sees eligible leaders in
the recorded state. An in-sync set below min.insync.replicas is recorded together with its eligible leaders,
so that the loss of its last member loses no committed record.

A replica that may lack committed records, because it lost its page cache or was restored from a copy, is
recorded as a last resort instead (decision 0025). Both lists are emptied by the write after which the leader
commits without these replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.cluster.image import NO_LEADER, NO_OFFSET, ClusterImage, PartitionState
from penstock.cluster.metadata_change import Rule
from penstock.config import MIN_INSYNC_REPLICAS, BrokerConfig, TopicConfig
from penstock.model import BrokerId, Offset, TopicPartition


def min_in_sync(image: ClusterImage, name: TopicPartition, config: BrokerConfig) -> int:
    """min.insync.replicas of the topic, with the defaults of this broker."""
    return TopicConfig(config, image.topics[name.topic].configs)[MIN_INSYNC_REPLICAS]


def with_members(
    partition: PartitionState,
    members: Sequence[BrokerId],
    *,
    keeps_eligible: bool,
    committed: Offset = NO_OFFSET,
    log_end: Offset = NO_OFFSET,
) -> PartitionState:
    """Partition with a new in-sync set, as its leader writes it. The leader has committed all records below
    `committed`, and its log ends at `log_end`.

    If `keeps_eligible` is False, the leader commits without the eligible leaders and the last resorts from
    then on.
    """
    changed = replace(partition, isr=tuple(members))
    if not keeps_eligible:
        return replace(changed, eligible=(), last_resort=(), committed=NO_OFFSET, sole_end=NO_OFFSET)
    left = (*partition.eligible, *(member for member in partition.isr if member not in members))
    return replace(
        changed,
        committed=max(partition.committed, committed),
        sole_end=log_end if len(members) == 1 else NO_OFFSET,
        eligible=_among(partition, left, members),
        last_resort=_among(partition, partition.last_resort, members),
    )


def keeping_eligible(rule: Rule, config: BrokerConfig) -> Rule:
    """Extend a rule: replicas that the rule removes from the in-sync set become eligible leaders if the
    remaining set is below min.insync.replicas or the partition has no leader.
    """

    def kept(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        ruled = rule(image, name, partition)
        left = set(partition.isr).difference(ruled.isr if ruled is not None else partition.isr)
        if ruled is None or not left.intersection(ruled.replicas):
            return ruled
        is_enough = len(ruled.isr) >= min(min_in_sync(image, name, config), len(ruled.replicas))
        if is_enough and ruled.leader != NO_LEADER:
            return replace(ruled, eligible=(), last_resort=(), committed=NO_OFFSET, sole_end=NO_OFFSET)
        eligible = (*ruled.eligible, *(member for member in partition.isr if member in left))
        return replace(ruled, eligible=_among(ruled, eligible, ruled.isr))

    return kept


def _among(
    partition: PartitionState, wanted: Sequence[BrokerId], members: Sequence[BrokerId]
) -> tuple[BrokerId, ...]:
    """Replicas in `wanted` that are not in `members`, in the order of the partition's replicas."""
    return tuple(replica for replica in partition.replicas if replica in wanted and replica not in members)
