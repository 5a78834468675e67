"""The return of a broker that may have lost records: it leaves in-sync sets before it is seen again. Pure.

A broker registers only after these rules were applied, so that no replica is elected that lacks committed records while
another one has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from penstock.cluster.eligible import min_in_sync
from penstock.cluster.image import NO_LEADER, NO_OFFSET, ClusterImage, PartitionState
from penstock.cluster.leaders import first_alive, led_by, mark_unclean
from penstock.cluster.metadata_change import Rule
from penstock.config import DURABILITY, BrokerConfig, Durability, TopicConfig
from penstock.model import BrokerId, TopicPartition


class LogState(Enum):
    """What a broker that starts still has of a partition."""

    COMPLETE = auto()
    """Everything that it ever wrote."""
    UNCERTAIN = auto()
    """Its log, perhaps without what was not fsynced: the machine lost its power."""
    PARTIAL = auto()
    """A log that has lost records, or that was restored from a copy."""
    VANISHED = auto()
    """Nothing; the checkpoint still knows the offsets."""
    MISSING = auto()
    """Nothing: the disk is another one."""

    @property
    def has_log(self) -> bool:
        return self in (LogState.COMPLETE, LogState.UNCERTAIN, LogState.PARTIAL)


def rejoin_rule(
    broker: BrokerId, log_state_of: Callable[[TopicPartition], LogState], config: BrokerConfig
) -> Rule:
    """What has to be recorded before this broker registers, by what it still has of each partition.

    A copy that is not complete leaves the in-sync set and the eligible leaders. While nothing can be committed without
    it, it is kept as a last resort, or as an eligible leader where it has all that was committed: with durability=fsync
    after a power loss. The only member of an in-sync set leaves it as `_yield` says.
    """

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        log_state = log_state_of(name)
        if log_state is LogState.COMPLETE:
            return None
        durability = TopicConfig(config, image.topics[name.topic].configs)[DURABILITY]
        is_durable = log_state is LogState.UNCERTAIN and durability is Durability.FSYNC
        after = partition if is_durable else _demote(partition, broker, log_state)
        rest = tuple(member for member in partition.isr if member != broker)
        if broker in partition.isr:
            if rest:
                after = _leave(image, after, broker, rest)
                if not _can_commit(image, after, min_in_sync(image, name, config)):
                    after = _keep(after, broker, log_state, is_durable=is_durable)
            else:
                after = _yield(image, after, broker, log_state, durability)
        return None if after == partition else after

    return rule


def _demote(partition: PartitionState, broker: BrokerId, log_state: LogState) -> PartitionState:
    """An eligible leader that may lack committed records is a last resort; without a log it is none."""
    resorts = partition.last_resort
    if not log_state.has_log:
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
    partition: PartitionState, broker: BrokerId, log_state: LogState, *, is_durable: bool
) -> PartitionState:
    """A replica that has left may have to lead: nothing has been committed since."""
    if is_durable:
        return replace(partition, eligible=(*_without(partition.eligible, broker), broker))
    if log_state.has_log:
        return replace(partition, last_resort=(*_without(partition.last_resort, broker), broker))
    return partition


def _yield(
    image: ClusterImage,
    partition: PartitionState,
    broker: BrokerId,
    log_state: LogState,
    durability: Durability,
) -> PartitionState:
    """The only member of the in-sync set gives its place to replicas that have more, if there are any.

    After a power loss it has all that was committed: the only machine in sync fsyncs first, except with durability=os.
    Otherwise eligible leaders have more. A last resort has more than nothing. With neither, what is left of the log
    leads; a new disk does not, until an operator decides.
    """
    if partition.eligible and (log_state is not LogState.UNCERTAIN or durability is Durability.OS):
        resorts = (*partition.last_resort, broker) if log_state.has_log else partition.last_resort
        leader = first_alive(image, partition, partition.eligible)
        yielded = replace(
            partition, isr=partition.eligible, eligible=(), last_resort=resorts, sole_end=NO_OFFSET
        )
        return led_by(yielded, leader)
    if log_state.has_log:
        return partition
    if partition.last_resort:
        leader = first_alive(image, partition, partition.last_resort)
        chosen = partition.last_resort[0] if leader == NO_LEADER else leader
        resorts = _without(partition.last_resort, chosen)
        return mark_unclean(led_by(replace(partition, isr=(chosen,), last_resort=resorts), leader))
    return partition if log_state is LogState.VANISHED else led_by(replace(partition, isr=()), NO_LEADER)


def _without(members: tuple[BrokerId, ...], broker: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member != broker)
