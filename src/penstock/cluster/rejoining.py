"""Rules for a broker that returns and may have lost records: it leaves in-sync sets before it registers.
Pure.

The rules are applied before the registration, so that a replica that lacks committed records is not elected
while another replica has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from penstock.cluster.eligible import min_in_sync
from penstock.cluster.image import NO_LEADER, NO_OFFSET, ClusterImage, PartitionState
from penstock.cluster.leader_election import first_alive, led_by, mark_unclean
from penstock.cluster.metadata_change import Rule
from penstock.config import BrokerConfig, Durability, TopicConfig
from penstock.model import BrokerId, TopicPartition


class LogCondition(Enum):
    """State of a replica's log when its broker starts."""

    COMPLETE = auto()
    """The log has every record that was written to it."""
    UNCERTAIN = auto()
    """The log may lack records that were not fsynced: the machine lost power."""
    PARTIAL = auto()
    """The log has lost records, or was restored from a copy."""
    VANISHED = auto()
    """The log is missing, but the checkpoint has its offsets."""
    MISSING = auto()
    """The log is missing because the disk was replaced."""

    @property
    def has_log(self) -> bool:
        return self in (LogCondition.COMPLETE, LogCondition.UNCERTAIN, LogCondition.PARTIAL)


def rejoin_rule(
    broker: BrokerId, log_condition_of: Callable[[TopicPartition], LogCondition], config: BrokerConfig
) -> Rule:
    """Rule to apply before this broker registers, depending on the condition of each log.

    A replica with an incomplete log leaves the in-sync set and the eligible leaders. If nothing can be
    committed without it, it is recorded as a last resort. A replica that has all committed records
    (durability=fsync after a power loss) is always recorded as an eligible leader: the registered members may
    be dead, and an alive leader empties the list before it commits. If the broker is the only member of the
    in-sync set, `_yield` decides.
    """

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        log_condition = log_condition_of(name)
        if log_condition is LogCondition.COMPLETE:
            return None
        durability = TopicConfig(config, image.topics[name.topic].configs).durability
        is_durable = log_condition is LogCondition.UNCERTAIN and durability is Durability.FSYNC
        after = partition if is_durable else _demote(partition, broker, log_condition)
        rest = tuple(member for member in partition.isr if member != broker)
        if broker in partition.isr:
            if rest:
                after = _leave(image, after, broker, rest)
                if is_durable or not _can_commit(image, after, min_in_sync(image, name, config)):
                    after = _keep(after, broker, log_condition, is_durable=is_durable)
            else:
                after = _yield(image, after, broker, log_condition, durability)
        return None if after == partition else after

    return rule


def _demote(partition: PartitionState, broker: BrokerId, log_condition: LogCondition) -> PartitionState:
    """Turn an eligible leader that may lack committed records into a last resort. A replica without a log is
    removed from both lists.
    """
    resorts = partition.last_resort
    if not log_condition.has_log:
        resorts = _without(resorts, broker)
    elif broker in partition.eligible and broker not in resorts:
        resorts = (*resorts, broker)
    return replace(partition, eligible=_without(partition.eligible, broker), last_resort=resorts)


def _leave(
    image: ClusterImage, partition: PartitionState, broker: BrokerId, rest: tuple[BrokerId, ...]
) -> PartitionState:
    left = replace(partition, isr=rest)
    return left if partition.leader != broker else led_by(left, first_alive(image, partition, rest))


def _can_commit(image: ClusterImage, partition: PartitionState, min_in_sync: int) -> bool:
    is_any_alive = first_alive(image, partition, partition.isr) != NO_LEADER
    return is_any_alive and len(partition.isr) >= min(min_in_sync, len(partition.replicas))


def _keep(
    partition: PartitionState, broker: BrokerId, log_condition: LogCondition, *, is_durable: bool
) -> PartitionState:
    """Record a replica that left the in-sync set as a possible leader: as an eligible leader if `is_durable`,
    else as a last resort if it has a log. Nothing is committed without it until the leader empties the lists.
    """
    if is_durable:
        return replace(partition, eligible=(*_without(partition.eligible, broker), broker))
    if log_condition.has_log:
        return replace(partition, last_resort=(*_without(partition.last_resort, broker), broker))
    return partition


def _yield(
    image: ClusterImage,
    partition: PartitionState,
    broker: BrokerId,
    log_condition: LogCondition,
    durability: Durability,
) -> PartitionState:
    """Replace this broker, the only member of the in-sync set, by replicas that have more records, if there
    are any.

    After a power loss the broker has all committed records, because the last in-sync machine fsyncs before it
    commits; durability=os is the exception. In all other cases eligible leaders have more records. A last
    resort has more records than a broker whose log is lost. If there is neither, the broker stays in the set
    and leads with the rest of its log. If its disk was replaced, the partition has no leader until an
    operator elects one.
    """
    if partition.eligible and (log_condition is not LogCondition.UNCERTAIN or durability is Durability.OS):
        resorts = (*partition.last_resort, broker) if log_condition.has_log else partition.last_resort
        leader = first_alive(image, partition, partition.eligible)
        yielded = replace(
            partition, isr=partition.eligible, eligible=(), last_resort=resorts, sole_end=NO_OFFSET
        )
        return led_by(yielded, leader)
    if log_condition.has_log:
        return partition
    if partition.last_resort:
        leader = first_alive(image, partition, partition.last_resort)
        chosen = partition.last_resort[0] if leader == NO_LEADER else leader
        resorts = _without(partition.last_resort, chosen)
        return mark_unclean(led_by(replace(partition, isr=(chosen,), last_resort=resorts), leader))
    return (
        partition if log_condition is LogCondition.VANISHED else led_by(replace(partition, isr=()), NO_LEADER)
    )


def _without(members: tuple[BrokerId, ...], broker: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member != broker)
