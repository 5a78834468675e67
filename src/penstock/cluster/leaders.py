"""The rules of elections: which replica leads a partition. Pure: an image in, new states out.

A leader is alive and comes from the recorded in-sync set or, where no member of that is alive, from the eligible
leaders recorded with it (`eligible.py`); otherwise there is none. Every election has a new leader epoch. What a broker
that comes back gives up is decided in `returning.py`.
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
    """Where the leader is gone another member of the in-sync set leads, or an eligible leader, or nobody until one is
    back.

    One that stops leaves every set that has another living member, or has that one lead, which takes it out.
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
    """Where no member of the in-sync set is alive, but an eligible leader is, all of them are in sync: each has every
    committed record. The leader takes out the dead ones, and fsyncs before that."""
    is_any_alive = first_alive(image, partition, partition.isr) != NO_LEADER
    if is_any_alive or first_alive(image, partition, partition.eligible) == NO_LEADER:
        return partition
    complete = {*partition.isr, *partition.eligible}
    members = tuple(replica for replica in partition.replicas if replica in complete)
    return replace(partition, isr=members, eligible=(), sole_end=NO_OFFSET)


def may_shrink(image: ClusterImage, members: Sequence[BrokerId], staying: Sequence[BrokerId]) -> bool:
    """Whether the in-sync set may become this by a write of anybody.

    What several machines vouch for need not be on a disk. Before one machine alone vouches for it, it must be: only the
    leader knows, so only it may write such a set.
    """
    machines = {image.brokers[member].machine_id for member in staying if member in image.brokers}
    return len(staying) == len(members) or len(machines) > 1


def prefer(image: ClusterImage, _: TopicPartition, partition: PartitionState) -> PartitionState | None:
    """The first of the replicas leads where it can: so topics are placed, and so leaders are spread.

    What is moving is left alone: leaders change again when it has arrived.
    """
    if partition.is_reassigning:
        return None
    return elect_preferred(image, partition)


def elect_preferred(image: ClusterImage, partition: PartitionState) -> PartitionState | None:
    preferred = partition.replicas[0]
    can_lead = preferred in partition.isr and preferred in image.brokers and not image.is_stopping(preferred)
    return led_by(partition, preferred) if can_lead and preferred != partition.leader else None


def elect_any(image: ClusterImage, partition: PartitionState) -> PartitionState | None:
    """Where neither a member of the in-sync set nor an eligible leader is alive, any replica leads, alone in sync.

    Records that it lacks are lost for good, so this happens only when an operator asks for it.
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
    """The election may give up committed records: replicas that have them truncate them."""
    return replace(elected, unclean_epoch=elected.leader_epoch, committed=NO_OFFSET, sole_end=NO_OFFSET)


def imbalanced(image: ClusterImage, percentage: int) -> frozenset[BrokerId]:
    """The brokers that lead less of what they are the preferred leaders of than may be missing, in per cent."""
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
    """Whether it is in an in-sync set with another that lives and could take it out."""
    return any(
        broker in partition.isr
        and any(member != broker and member in image.brokers for member in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def resume_leadership(broker: BrokerId) -> Rule:
    """A broker that started leads what it led, and what was waiting for it.

    Always in a new leader epoch: one that crashed may have lost records of the last one.
    """

    def rule(_: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        is_ours = broker in partition.isr and partition.leader in (broker, NO_LEADER)
        return led_by(partition, broker) if is_ours else None

    return rule


def prefer_for(brokers: Collection[BrokerId]) -> Rule:
    """As `prefer`, for what these brokers should lead."""

    def rule(image: ClusterImage, name: TopicPartition, partition: PartitionState) -> PartitionState | None:
        return prefer(image, name, partition) if partition.replicas[0] in brokers else None

    return rule


def affected(image: ClusterImage, topics: Iterable[str], rule: Rule) -> list[TopicPartition]:
    """The partitions of these topics that the rule would change."""
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
    """In the order of the replicas: the preferred leader first."""
    alive = (broker for broker in partition.replicas if broker in members and broker in image.brokers)
    return next(alive, NO_LEADER)


def led_by(partition: PartitionState, leader: BrokerId) -> PartitionState:
    return replace(partition, leader=leader, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
