"""The return of a broker that may have lost records: it leaves in-sync sets before it is seen again. Pure.

A broker registers only after these rules were applied, so that no replica is elected that lacks committed records while
another one has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from penstock.cluster.decisions import Rule
from penstock.cluster.eligible import min_in_sync
from penstock.cluster.image import NO_LEADER, NO_OFFSET, ClusterImage, Partition
from penstock.cluster.leaders import first_alive, led_by, uncleanly
from penstock.config import DURABILITY, BrokerConfig, Durability, TopicConfig
from penstock.model import BrokerId, TopicPartition


class Copy(Enum):
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
        return self in (Copy.COMPLETE, Copy.UNCERTAIN, Copy.PARTIAL)


def returning(broker: BrokerId, copy_of: Callable[[TopicPartition], Copy], config: BrokerConfig) -> Rule:
    """What has to be recorded before this broker registers, by what it still has of each partition.

    A copy that is not complete leaves the in-sync set and the eligible leaders. While nothing can be committed without
    it, it is kept as a last resort, or as an eligible leader where it has all that was committed: with durability=fsync
    after a power loss. The only member of an in-sync set leaves it as `_yield` says.
    """

    def rule(image: ClusterImage, name: TopicPartition, partition: Partition) -> Partition | None:
        copy = copy_of(name)
        if copy is Copy.COMPLETE:
            return None
        durability = TopicConfig(config, image.topics[name.topic].configs)[DURABILITY]
        is_durable = copy is Copy.UNCERTAIN and durability is Durability.FSYNC
        after = partition if is_durable else _demote(partition, broker, copy)
        rest = tuple(member for member in partition.isr if member != broker)
        if broker in partition.isr:
            if rest:
                after = _leave(image, after, broker, rest)
                if not _can_commit(image, after, min_in_sync(image, name, config)):
                    after = _keep(after, broker, copy, is_durable=is_durable)
            else:
                after = _yield(image, after, broker, copy, durability)
        return None if after == partition else after

    return rule


def _demote(partition: Partition, broker: BrokerId, copy: Copy) -> Partition:
    """An eligible leader that may lack committed records is a last resort; without a log it is none."""
    resorts = partition.last_resort
    if not copy.has_log:
        resorts = _without(resorts, broker)
    elif broker in partition.eligible and broker not in resorts:
        resorts = (*resorts, broker)
    return replace(partition, eligible=_without(partition.eligible, broker), last_resort=resorts)


def _leave(
    image: ClusterImage, partition: Partition, broker: BrokerId, rest: tuple[BrokerId, ...]
) -> Partition:
    left = replace(partition, isr=rest)
    return left if partition.leader != broker else led_by(left, first_alive(image, partition, rest))


def _can_commit(image: ClusterImage, partition: Partition, min_in_sync: int) -> bool:
    is_any_alive = first_alive(image, partition, partition.isr) != NO_LEADER
    return is_any_alive and len(partition.isr) >= min(min_in_sync, len(partition.replicas))


def _keep(partition: Partition, broker: BrokerId, copy: Copy, *, is_durable: bool) -> Partition:
    """A replica that has left may have to lead: nothing has been committed since."""
    if is_durable:
        return replace(partition, eligible=(*_without(partition.eligible, broker), broker))
    if copy.has_log:
        return replace(partition, last_resort=(*_without(partition.last_resort, broker), broker))
    return partition


def _yield(
    image: ClusterImage, partition: Partition, broker: BrokerId, copy: Copy, durability: Durability
) -> Partition:
    """The only member of the in-sync set gives its place to replicas that have more, if there are any.

    After a power loss it has all that was committed: the only machine in sync fsyncs first, except with durability=os.
    Otherwise eligible leaders have more. A last resort has more than nothing. With neither, what is left of the log
    leads; a new disk does not, until an operator decides.
    """
    if partition.eligible and (copy is not Copy.UNCERTAIN or durability is Durability.OS):
        resorts = (*partition.last_resort, broker) if copy.has_log else partition.last_resort
        leader = first_alive(image, partition, partition.eligible)
        yielded = replace(
            partition, isr=partition.eligible, eligible=(), last_resort=resorts, sole_end=NO_OFFSET
        )
        return led_by(yielded, leader)
    if copy.has_log:
        return partition
    if partition.last_resort:
        leader = first_alive(image, partition, partition.last_resort)
        chosen = partition.last_resort[0] if leader == NO_LEADER else leader
        resorts = _without(partition.last_resort, chosen)
        return uncleanly(led_by(replace(partition, isr=(chosen,), last_resort=resorts), leader))
    return partition if copy is Copy.VANISHED else led_by(replace(partition, isr=()), NO_LEADER)


def _without(members: tuple[BrokerId, ...], broker: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member != broker)
