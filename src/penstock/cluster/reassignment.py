"""Moving a partition to other brokers: how a move begins, ends and is called off. Pure: a state in, a new one out.

While it is under way the replicas are those from before and, after them, those that it adds: nobody is given up until
everybody it adds is in sync. Whoever is given up, then or because the move is called off, leaves the in-sync set by the
same write, and in a new leader epoch, which fences it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.cluster import leaders
from penstock.cluster.image import ClusterImage, Partition
from penstock.config import MIN_INSYNC_REPLICAS, BrokerConfig, TopicConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, TopicPartition


def begin(
    image: ClusterImage, partition: Partition, target: Sequence[BrokerId], *, may_change_count: bool = True
) -> Partition:
    """The partition on its way to these replicas, instead of to others that it may have been on its way to."""
    origin = _origin(partition)
    _check(image, partition, target)
    if not may_change_count and len(target) != len(origin):
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            f"{len(target)} replicas instead of {len(origin)}, but the request allows no other number",
        )
    if set(target) == set(origin):
        return _on(image, partition, tuple(target))
    adding = tuple(replica for replica in target if replica not in origin)
    return _on(image, partition, origin + adding, adding, tuple(target))


def call_off(image: ClusterImage, partition: Partition) -> Partition:
    """The partition on the replicas it was moving from."""
    if not partition.is_moving:
        raise BrokerError(ErrorCode.no_reassignment_in_progress, "the partition is not moving")
    return _on(image, partition, _origin(partition))


def finish(config: BrokerConfig) -> leaders.Rule:
    """Where everybody a move adds is in sync, the others go.

    Those who stay must be as many as acks=all asks for: a move never makes a partition that takes writes refuse them.
    """

    def rule(image: ClusterImage, name: TopicPartition, partition: Partition) -> Partition | None:
        if not partition.is_moving:
            return None
        target = partition.target_replicas
        staying = [member for member in partition.isr if member in target]
        alive = [member for member in staying if member in image.brokers and not image.is_stopping(member)]
        if not set(partition.adding_replicas) <= set(alive):
            return None
        is_shrinking = len(staying) < len(partition.isr)
        if is_shrinking and len(alive) < min(_min_in_sync(image, name, config), len(target)):
            return None
        return _on(image, partition, target)

    return rule


def settle(config: BrokerConfig) -> leaders.Rule:
    """What the controller sees to: moves come to their end, and partitions have leaders."""
    finished = finish(config)

    def rule(image: ClusterImage, name: TopicPartition, partition: Partition) -> Partition | None:
        return finished(image, name, partition) or leaders.elect(image, name, partition)

    return rule


def _origin(partition: Partition) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def _check(image: ClusterImage, partition: Partition, target: Sequence[BrokerId]) -> None:
    problem = None
    if not target:
        problem = "a partition has 1 replica or more"
    elif len(set(target)) < len(target):
        problem = "a broker holds one replica at most"
    elif unknown := _unknown(image, partition, target):
        problem = f"there is no broker {unknown[0]}"
    if problem is not None:
        raise BrokerError(ErrorCode.invalid_replica_assignment, problem)


def _unknown(image: ClusterImage, partition: Partition, target: Collection[BrokerId]) -> list[BrokerId]:
    """A replica that there is already may be on a broker that is away."""
    return [broker for broker in target if broker not in image.brokers and broker not in partition.replicas]


def _min_in_sync(image: ClusterImage, name: TopicPartition, config: BrokerConfig) -> int:
    return TopicConfig(config, image.topics[name.topic].configs)[MIN_INSYNC_REPLICAS]


def _on(
    image: ClusterImage,
    partition: Partition,
    replicas: tuple[BrokerId, ...],
    adding: tuple[BrokerId, ...] = (),
    target: tuple[BrokerId, ...] = (),
) -> Partition:
    """The partition on these replicas and no others."""
    isr = tuple(member for member in partition.isr if member in replicas)
    moved = replace(partition, replicas=replicas, isr=isr, adding_replicas=adding, target_replicas=target)
    if set(partition.replicas) <= set(replicas):
        return moved
    if partition.isr and not isr:
        raise BrokerError(
            ErrorCode.invalid_replica_assignment, "none of the replicas that would be left is in sync"
        )
    stays = partition.leader in isr and partition.leader in image.brokers
    return leaders.led_by(moved, partition.leader if stays else leaders.first_alive(image, moved, isr))
