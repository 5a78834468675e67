"""Rules of a smaller partition count: which partitions are removed, and when a partition is sealed and
removed. Pure.

The partitions with the highest indexes are removed, each through the phases of `PartitionPhase`. They stay in
the image until the end, so that consumers can read all their records. The leader of a partition writes its
phases, on condition of the partition epoch. The request of an administrator also writes the topic's node, so
that it conflicts with any other change of the partition count. The log end offset and leader epoch of a
removed partition stay in the topic's node: a new partition with the same index begins there, so that no
offset ever refers to two records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum

from penstock.cluster import znodes
from penstock.cluster.coordination import Delete, Operation, Set
from penstock.cluster.image import ClusterImage, PartitionPhase, PartitionState, RemovedPartition, TopicImage
from penstock.cluster.loading import encode_partition, encode_topic
from penstock.cluster.metadata_change import MetadataChange, existing_topic, scope_of
from penstock.cluster.topic_writes import MAX_PARTITIONS_PER_MULTI, Writes
from penstock.cluster.views import refuse_view
from penstock.config import (
    CLEANUP_POLICY,
    BrokerConfig,
    CleanupPolicy,
    TopicConfig,
)
from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset, TopicPartition


class CountChange(Enum):
    """Requests of an administrator that change the partition count or the phases of partitions."""

    SET = "set"
    """Change the number of active partitions to `count`: let partitions drain, or make draining and sealed
    ones active.
    """
    SEAL_NOW = "seal-now"
    """Refuse new records at once in the partitions from index `count` on."""
    DROP_SEALED = "drop-sealed"
    """Remove sealed partitions without waiting for their retention."""


@dataclass(frozen=True, slots=True)
class WantedCount:
    topic: str
    count: int
    """Wanted number of active partitions. DROP_SEALED ignores it."""
    change: CountChange = CountChange.SET
    waits_for_groups: bool = True


def plan_count(image: ClusterImage, wanted: WantedCount, config: BrokerConfig, now_ms: int) -> TopicImage:
    """Topic with the new phases of its partitions. BrokerError if the request is refused."""
    topic = existing_topic(image, wanted.topic)
    refuse_view(image, topic.name)
    if wanted.change is CountChange.DROP_SEALED:
        return _dropping(topic, now_ms)
    present, active = len(topic.partitions), topic.active_count
    if not 1 <= wanted.count <= present:
        raise _invalid(
            f"topic {topic.name} has {present} partitions: {wanted.count} is not between 1 and {present}"
        )
    if wanted.count < active:
        _check_can_shrink(topic, TopicConfig(config, topic.configs), range(wanted.count, active))
    elif wanted.count == active and wanted.change is CountChange.SET:
        raise _invalid(f"topic {topic.name} has {active} partitions already")
    partitions = tuple(
        _wanted_phase(state, index, wanted, now_ms) for index, state in enumerate(topic.partitions)
    )
    return _changed(topic, partitions)


def change_count(image: ClusterImage, topic: TopicImage) -> MetadataChange[TopicImage]:
    """Change that writes the partitions whose phase has changed, and the topic's node."""
    before = image.topics[topic.name].partitions
    writes = [
        Set(znodes.partition_path(topic.name, index), encode_partition(state), state.partition_epoch)
        for index, state in enumerate(topic.partitions)
        if state is not before[index]
    ]
    if len(writes) > MAX_PARTITIONS_PER_MULTI:
        raise _invalid(
            f"{len(writes)} partitions are more than {MAX_PARTITIONS_PER_MULTI} in one request: remove them in steps"
        )
    shown = Set(znodes.topic_path(topic.name), encode_topic(topic), topic.version - 1)
    return MetadataChange(topic, Writes((shown, *writes)), scope_of([topic]))


def with_phase(state: PartitionState, phase: PartitionPhase, now_ms: int) -> PartitionState:
    return replace(state, phase=phase, phase_since_ms=now_ms)


def removal(
    image: ClusterImage, ends: Mapping[TopicPartition, Offset]
) -> MetadataChange[AbstractSet[TopicPartition]]:
    """Change by which a leader removes the last partitions of topics. `ends` has their final log end offsets.

    The result is the set of removed partitions. A partition that is not the last one, or not sealed, stays.
    """
    operations: list[Operation] = []
    topics: list[TopicImage] = []
    removed: set[TopicPartition] = set()
    for name in dict.fromkeys(each.topic for each in ends):
        topic = image.topic(name)
        rest = topic
        while rest is not None:
            last = TopicPartition(name, len(rest.partitions) - 1)
            if last not in ends or not is_removable(rest, last.partition):
                break
            state = rest.partitions[-1]
            operations.append(Delete(znodes.partition_path(name, last.partition), state.partition_epoch))
            rest = _without_last(rest, ends[last])
            removed.add(last)
        if topic is not None and rest is not None and rest is not topic:
            rest = replace(rest, version=topic.version + 1)
            operations.append(Set(znodes.topic_path(name), encode_topic(rest), topic.version))
            topics.append(rest)
    return MetadataChange(removed, Writes(tuple(operations)), scope_of(topics))


def _without_last(topic: TopicImage, log_end: Offset) -> TopicImage:
    ended = RemovedPartition(log_end, topic.partitions[-1].leader_epoch)
    return replace(topic, partitions=topic.partitions[:-1], removed=(ended, *topic.removed))


def is_removable(topic: TopicImage, index: int, last: int | None = None) -> bool:
    """True if a partition is the last one, sealed, and not being reassigned.

    `last` is the index of the last partition if those above it are removed by the same change.
    """
    state = topic.partitions[index]
    is_last = 0 < index == (len(topic.partitions) - 1 if last is None else last)
    return is_last and state.phase >= PartitionPhase.SEALED and not state.is_reassigning


def begin_again(state: PartitionState, removed: RemovedPartition | None) -> PartitionState:
    """First state of a partition. If a partition with its index was removed before, offsets and leader epochs
    continue.
    """
    if removed is None:
        return state
    epoch = LeaderEpoch(removed.leader_epoch + 1)
    return replace(state, leader_epoch=epoch, first_offset=removed.log_end_offset)


def _wanted_phase(state: PartitionState, index: int, wanted: WantedCount, now_ms: int) -> PartitionState:
    if index < wanted.count:
        if state.phase is PartitionPhase.ACTIVE:
            return state
        return replace(with_phase(state, PartitionPhase.ACTIVE, now_ms), waits_for_groups=True)
    if wanted.change is CountChange.SEAL_NOW and state.phase < PartitionPhase.SEALING:
        return replace(with_phase(state, PartitionPhase.SEALING, now_ms), waits_for_groups=False)
    if state.phase is PartitionPhase.ACTIVE:
        drained = with_phase(state, PartitionPhase.DRAINING, now_ms)
        return replace(drained, waits_for_groups=wanted.waits_for_groups)
    if state.phase is PartitionPhase.DRAINING and state.waits_for_groups and not wanted.waits_for_groups:
        return replace(state, waits_for_groups=False)
    return state


def _dropping(topic: TopicImage, now_ms: int) -> TopicImage:
    sealed = [index for index, state in enumerate(topic.partitions) if state.phase is PartitionPhase.SEALED]
    if not sealed:
        raise _invalid(f"topic {topic.name} has no sealed partitions")
    partitions = tuple(
        with_phase(state, PartitionPhase.DROPPING, now_ms) if index in sealed else state
        for index, state in enumerate(topic.partitions)
    )
    return _changed(topic, partitions)


def _changed(topic: TopicImage, partitions: tuple[PartitionState, ...]) -> TopicImage:
    return replace(topic, partitions=partitions, version=topic.version + 1)


def _check_can_shrink(topic: TopicImage, settings: TopicConfig, going: Collection[int]) -> None:
    if CleanupPolicy.COMPACT in settings[CLEANUP_POLICY]:
        raise _invalid(
            f"topic {topic.name} is compacted: the newest value of a key in a removed partition would be lost"
        )
    moving = [index for index in going if topic.partitions[index].is_reassigning]
    if moving:
        raise BrokerError(
            ErrorCode.reassignment_in_progress,
            f"partition {moving[0]} of topic {topic.name} is being reassigned; wait for its end or cancel it",
        )


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_partitions, message)
