"""Rules of partition reassignment: begin, complete and cancel. Pure: a state in, a new state out.

While a reassignment is in progress, the replicas are the original ones followed by the added ones. No replica
is removed until all added ones are in sync. Replicas are removed in a new leader epoch, so that their later
fetches do not count. If an in-sync set would shrink to one machine, its leader writes it after an fsync.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.cluster import leader_election
from penstock.cluster.eligible import keeping_eligible, min_in_sync
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.metadata_change import Rule
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, TopicPartition


def begin(
    image: ClusterImage,
    partition: PartitionState,
    target: Sequence[BrokerId],
    *,
    may_change_count: bool = True,
) -> PartitionState:
    """Partition with a reassignment to the replicas in `target`. It replaces a reassignment in progress."""
    origin = _origin(partition)
    _check(image, partition, target)
    if not may_change_count and len(target) != len(origin):
        raise BrokerError(
            ErrorCode.invalid_replication_factor,
            f"the replication factor would change from {len(origin)} to {len(target)}; the request does not allow it",
        )
    return _towards(partition, tuple(target))


def cancel(partition: PartitionState) -> PartitionState:
    """Partition with a reassignment back to its original replicas."""
    if not partition.is_reassigning:
        raise BrokerError(
            ErrorCode.no_reassignment_in_progress, "no reassignment of this partition is in progress"
        )
    return _towards(partition, _origin(partition))


def leaving(
    image: ClusterImage, name: TopicPartition, partition: PartitionState, config: BrokerConfig
) -> frozenset[BrokerId]:
    """Replicas that the reassignment removes if it completes now; empty if it cannot complete yet."""
    if not _is_due(image, name, partition, config):
        return frozenset()
    return frozenset(partition.replicas).difference(partition.target_replicas)


def _is_due(
    image: ClusterImage, name: TopicPartition, partition: PartitionState, config: BrokerConfig
) -> bool:
    """True if all added replicas are in sync, so that the reassignment can complete.

    The remaining in-sync replicas must reach min.insync.replicas, so that completing a reassignment never
    makes a writable partition refuse writes.
    """
    if not partition.is_reassigning:
        return False
    target, in_sync = set(partition.target_replicas), set(partition.isr)
    alive = {
        member for member in in_sync & target if member in image.brokers and not image.is_stopping(member)
    }
    if not set(partition.adding_replicas) & target <= alive:
        return False
    return in_sync <= target or len(alive) >= min(min_in_sync(image, name, config), len(target))


def complete(config: BrokerConfig) -> Rule:
    """Rule that completes reassignments whose added replicas are in sync: it removes the other replicas and
    elects one of the remaining replicas as leader.
    """

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        if not _is_due(image, name, partition, config):
            return None
        staying = tuple(member for member in partition.isr if member in partition.target_replicas)
        there = replace(
            partition,
            replicas=partition.target_replicas,
            isr=staying,
            adding_replicas=(),
            target_replicas=(),
            last_resort=_among(partition.target_replicas, partition.last_resort),
            eligible=_among(partition.target_replicas, partition.eligible),
        )
        stays = partition.leader in staying and partition.leader in image.brokers
        leader = partition.leader if stays else leader_election.first_alive(image, there, staying)
        if leader_election.may_shrink(image, partition.isr, staying):
            return leader_election.led_by(there, leader)
        return None if stays else leader_election.led_by(partition, leader)

    return rule


def settle(config: BrokerConfig) -> Rule:
    """Rule of the controller: completes reassignments and elects leaders."""
    finished = complete(config)

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        return finished(image, name, partition) or leader_election.elect(image, name, partition)

    return keeping_eligible(rule, config)


def _origin(partition: PartitionState) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def _check(image: ClusterImage, partition: PartitionState, target: Sequence[BrokerId]) -> None:
    problem = None
    if not target:
        problem = "a partition needs at least 1 replica"
    elif len(set(target)) < len(target):
        problem = "a broker is named twice"
    elif unknown := _unknown(image, partition, target):
        problem = f"there is no broker {unknown[0]}"
    if problem is not None:
        raise BrokerError(ErrorCode.invalid_replica_assignment, problem)


def _unknown(image: ClusterImage, partition: PartitionState, target: Collection[BrokerId]) -> list[BrokerId]:
    """Brokers in `target` that are neither registered nor replicas. A current replica may be on an offline broker."""
    return [broker for broker in target if broker not in image.brokers and broker not in partition.replicas]


def _among(replicas: Collection[BrokerId], members: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member in replicas)


def _towards(partition: PartitionState, target: tuple[BrokerId, ...]) -> PartitionState:
    """State with a new target. A replica that an earlier reassignment added and the new target lacks is
    removed at once or, if it is in sync, at the end of the new reassignment.
    """
    origin = _origin(partition)
    unwanted = tuple(
        replica for replica in partition.adding_replicas if replica not in target and replica in partition.isr
    )
    adding = tuple(replica for replica in target if replica not in origin) + unwanted
    replicas = origin + adding
    partition = replace(
        partition,
        last_resort=_among(replicas, partition.last_resort),
        eligible=_among(replicas, partition.eligible),
    )
    if not adding and set(origin) == set(target):
        moved = replace(partition, replicas=target, adding_replicas=(), target_replicas=())
    else:
        moved = replace(partition, replicas=replicas, adding_replicas=adding, target_replicas=target)
    if set(partition.replicas) <= set(replicas):
        return moved
    return leader_election.led_by(moved, partition.leader)
