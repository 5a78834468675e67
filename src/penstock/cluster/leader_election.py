"""Election rules: which replica leads a partition. Pure: an image in, new partition states out.

The leader is an alive member of the recorded in-sync set or, if none of them is alive, of the eligible
leaders (`eligible.py`); otherwise there is no leader. Every election increases the leader epoch.
`rejoining.py` decides what a broker gives up when it registers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from penstock.cluster.image import NO_LEADER, NO_OFFSET, ClusterImage, PartitionState
from penstock.cluster.metadata_change import MetadataChange, Rule
from penstock.cluster.partition_writes import PartitionWrites
from penstock.cluster.topic_writes import Writes
from penstock.model import BrokerId, LeaderEpoch, TopicPartition


def elect(image: ClusterImage, _: TopicPartition, partition: PartitionState) -> PartitionState | None:
    """Elect a new leader if the current one is not alive: a member of the in-sync set, else an eligible
    leader. The partition has no leader until one of them is alive.

    A stopping broker is removed from every in-sync set that has another alive member. If only the leader may
    write the smaller set (`may_shrink`), the other member becomes the leader and writes it.
    """
    partition = _with_eligible(image, partition)
    staying = tuple(member for member in partition.isr if not image.is_stopping(member))
    if first_alive(image, partition, staying) != NO_LEADER and len(staying) < len(partition.isr):
        rest = replace(partition, isr=staying) if may_shrink(image, partition.isr, staying) else partition
        if partition.leader not in staying or partition.leader not in image.brokers:
            return led_by(rest, first_alive(image, partition, staying))
        return None if rest is partition else rest
    if partition.leader in image.brokers:
        return None
    leader = first_alive(image, partition, partition.isr)
    return None if leader == partition.leader else led_by(partition, leader)


def _with_eligible(image: ClusterImage, partition: PartitionState) -> PartitionState:
    """If no in-sync replica is alive but an eligible leader is, make the replicas of both lists the in-sync
    set, because each of them has every committed record. The leader removes dead replicas later, after an
    fsync.
    """
    is_any_alive = first_alive(image, partition, partition.isr) != NO_LEADER
    if is_any_alive or first_alive(image, partition, partition.eligible) == NO_LEADER:
        return partition
    complete = {*partition.isr, *partition.eligible}
    members = tuple(replica for replica in partition.replicas if replica in complete)
    return replace(partition, isr=members, eligible=(), sole_end=NO_OFFSET)


def may_shrink(image: ClusterImage, members: Sequence[BrokerId], staying: Sequence[BrokerId]) -> bool:
    """True if a broker other than the leader may shrink the in-sync set from `members` to `staying`.

    Records that are on several machines need not be fsynced. Before the in-sync set shrinks to a single
    machine they must be, and only the leader knows whether they are, so only the leader may write such a set.
    """
    machines = {image.brokers[member].machine_id for member in staying if member in image.brokers}
    return len(staying) == len(members) or len(machines) > 1


def prefer(image: ClusterImage, _: TopicPartition, partition: PartitionState) -> PartitionState | None:
    """Elect the preferred leader, the first replica, if it is in sync and alive.

    A partition with a reassignment in progress is skipped, because its leader changes again at the end.
    """
    if partition.is_reassigning:
        return None
    return elect_preferred(image, partition)


def elect_preferred(image: ClusterImage, partition: PartitionState) -> PartitionState | None:
    preferred = partition.replicas[0]
    can_lead = preferred in partition.isr and preferred in image.brokers and not image.is_stopping(preferred)
    return led_by(partition, preferred) if can_lead and preferred != partition.leader else None


def elect_any(image: ClusterImage, partition: PartitionState) -> PartitionState | None:
    """Unclean election: if neither an in-sync replica nor an eligible leader is alive, elect any alive
    replica and make it the only in-sync one.

    Records that this replica lacks are lost, so this happens only at an operator's request.
    """
    if partition.leader in image.brokers:
        return None
    partition = _with_eligible(image, partition)
    leader = first_alive(image, partition, partition.isr)
    if leader != NO_LEADER:
        return led_by(partition, leader)
    leader = first_alive(image, partition, partition.replicas)
    if leader == NO_LEADER:
        return None
    return mark_unclean(led_by(replace(partition, isr=(leader,), eligible=(), last_resort=()), leader))


def mark_unclean(elected: PartitionState) -> PartitionState:
    """Mark an election that may lose committed records, so that other replicas truncate theirs to the new
    leader's log.
    """
    return replace(elected, unclean_epoch=elected.leader_epoch, committed=NO_OFFSET, sole_end=NO_OFFSET)


def imbalanced(image: ClusterImage, percentage: int) -> frozenset[BrokerId]:
    """Brokers that are the preferred leader of partitions of which more than `percentage` per cent have
    another leader or none.
    """
    preferred: Counter[BrokerId] = Counter()
    missing: Counter[BrokerId] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred[partition.replicas[0]] += 1
            missing[partition.replicas[0]] += partition.leader != partition.replicas[0]
    return frozenset(
        broker for broker, count in preferred.items() if missing[broker] * 100 > count * percentage
    )


def shares_in_sync_set(image: ClusterImage, broker: BrokerId) -> bool:
    """True if the broker is in an in-sync set with another alive broker, which could remove it."""
    return any(
        broker in partition.isr
        and any(member != broker and member in image.brokers for member in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def resume_leadership(broker: BrokerId) -> Rule:
    """Rule for a broker that has started: it leads the partitions that it led before, and partitions without
    a leader that have it in their in-sync set.

    The leader epoch always increases, because a broker that crashed may have lost records of its previous
    epoch.
    """

    def rule(_: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        is_ours = broker in partition.isr and partition.leader in (broker, NO_LEADER)
        return led_by(partition, broker) if is_ours else None

    return rule


def prefer_for(brokers: Collection[BrokerId]) -> Rule:
    """Rule `prefer`, restricted to partitions whose preferred leader is one of these brokers."""

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        return prefer(image, name, partition) if partition.replicas[0] in brokers else None

    return rule


def affected(image: ClusterImage, topics: Iterable[str], rule: Rule) -> list[TopicPartition]:
    """Partitions of these topics that the rule would change."""
    names = (
        (TopicPartition(topic.name, index), partition)
        for topic in map(image.topic, topics)
        if topic is not None
        for index, partition in enumerate(topic.partitions)
    )
    return [name for name, partition in names if rule(image, name, partition) is not None]


def decide(image: ClusterImage, names: Sequence[TopicPartition], rule: Rule) -> MetadataChange[None]:
    writes = PartitionWrites()
    for name in names:
        partition = image.partition(name)
        ruled = rule(image, name, partition) if partition else None
        if ruled is not None:
            writes.set(name, ruled)
    return MetadataChange(None, Writes(tuple(writes.operations)), writes.scope)


def first_alive(image: ClusterImage, partition: PartitionState, members: Sequence[BrokerId]) -> BrokerId:
    """First alive broker of `members` in the order of the replicas, so that the preferred leader comes first."""
    alive = (broker for broker in partition.replicas if broker in members and broker in image.brokers)
    return next(alive, NO_LEADER)


def led_by(partition: PartitionState, leader: BrokerId) -> PartitionState:
    return replace(partition, leader=leader, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
