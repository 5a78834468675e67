"""Conversion of a group with members: from classic to consumer when a member of the consumer protocol joins,
and back when the last of these members leaves.

No member loses its partitions. The group epoch continues the generation and vice versa; the next heartbeat of
each member tells it to join again. The functions only decide: `shard_groups` applies the records, as in a
replay, and the shard appends them before the records of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.cluster.image import ClusterImage
from penstock.config import GroupMigrationPolicy
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from penstock.groups.records import (
    Assignment,
    ClassicGroupKey,
    ClassicGroupValue,
    ClassicMember,
    ClassicProtocols,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    MemberState,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.groups.settings import GroupSettings
from penstock.model import TopicId

_UNKNOWN_TOPICS = 0
_UPGRADES = (GroupMigrationPolicy.BIDIRECTIONAL, GroupMigrationPolicy.UPGRADE)


def upgrade(classic: ClassicGroup, image: ClusterImage, settings: GroupSettings) -> list[GroupRecord]:
    """Records that convert a classic group to a consumer group. BrokerError if it cannot be converted. The
    caller answers waiting requests with `give_up`.

    The current assignments become the target of the epoch. The epoch has no metadata hash, so the next event
    begins a new epoch.
    """
    saved, group_id = classic.saved(), classic.group_id
    if settings.migration_policy not in _UPGRADES:
        raise _refused(
            "group.consumer.migration.policy does not allow it while classic members are in the group"
        )
    if saved.protocol_type != PROTOCOL_TYPE:
        raise _refused(f"its protocol type is {saved.protocol_type!r}, not {PROTOCOL_TYPE!r}")
    if len(saved.members) > settings.max_size:
        raise _refused(f"it has {len(saved.members)} members, more than the maximum of {settings.max_size}")
    try:
        values = {member.member_id: _member_value(classic, member) for member in saved.members}
        owned = _owned(saved.members, values, image)
    except BrokerError as error:
        raise _refused(f"the subscription of a member is invalid: {error}") from None
    records = [GroupRecord(ClassicGroupKey(group_id), None)]
    for member_id, value in values.items():
        settled = _settled(saved.generation, owned[member_id])
        records += (
            GroupRecord(ConsumerMemberKey(group_id, member_id), value),
            GroupRecord(CurrentAssignmentKey(group_id, member_id), settled),
            GroupRecord(TargetMemberKey(group_id, member_id), TargetMemberValue(settled.assigned)),
        )
    return [
        *records,
        GroupRecord(ConsumerGroupKey(group_id), ConsumerGroupValue(saved.generation, _UNKNOWN_TOPICS)),
        GroupRecord(TargetEpochKey(group_id), TargetEpochValue(saved.generation)),
    ]


def downgrade(consumer: ConsumerGroup, now_ms: int) -> list[GroupRecord]:
    """Records that convert a consumer group, whose members all use the classic protocol, to a classic group.
    `now_ms` is wall-clock time. The caller must begin a rebalance, because the broker no longer assigns
    partitions.
    """
    remembered = consumer.remembered
    protocol_name = _common_protocol([_classic(member) for member in remembered.members.values()])
    members = tuple(
        _classic_member(member, protocol_name, encode_assignment(remembered.by_name(member.assigned), 0))
        for member in remembered.members.values()
    )
    value = ClassicGroupValue(
        protocol_type=PROTOCOL_TYPE,
        generation=remembered.epoch,
        protocol_name=protocol_name,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=members,
    )
    return [*consumer.tombstones(), GroupRecord(ClassicGroupKey(consumer.group_id), value)]


def _refused(message: str) -> BrokerError:
    return BrokerError(ErrorCode.group_id_not_found, f"the group cannot become a consumer group: {message}")


def _member_value(classic: ClassicGroup, member: ClassicMember) -> ConsumerMemberValue:
    protocols = classic.protocols_of(member.member_id)
    subscription = decode_subscription(protocols[0][1])
    return ConsumerMemberValue(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=subscription.topics,
        subscribed_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicProtocols(member.session_timeout_ms, protocols),
    )


def _owned(
    members: Sequence[ClassicMember], values: Mapping[str, ConsumerMemberValue], image: ClusterImage
) -> dict[str, Assignment]:
    """Partitions that members own: those that the group leader assigned or, in an unfinished rebalance, those
    that the members declared when they joined.
    """
    taken: dict[TopicId, set[int]] = {}
    owned: dict[str, Assignment] = {}
    for member in sorted(members, key=lambda member: not member.assignment):
        claimed = decode_assignment(member.assignment) or _claimed(member, values[member.member_id])
        owned[member.member_id] = _take(claimed, image, taken)
    return owned


def _claimed(member: ClassicMember, value: ConsumerMemberValue) -> TopicPartitions:
    if member.assignment or value.classic is None:
        return {}
    return decode_subscription(value.classic.protocols[0][1]).owned


def _take(partitions: TopicPartitions, image: ClusterImage, taken: dict[TopicId, set[int]]) -> Assignment:
    """Convert partitions to an assignment, without partitions in `taken`, which other members own, and
    partitions that do not exist. The result is added to `taken`.
    """
    assigned: Assignment = {}
    for name, numbers in partitions.items():
        topic = image.topic(name)
        if topic is None:
            continue
        topic = image.shown(topic)
        of_topic = taken.setdefault(topic.id, set())
        free = frozenset(number for number in numbers if 0 <= number < len(topic.partitions)) - of_topic
        of_topic |= free
        if free:
            assigned[topic.id] = free
    return assigned


def _settled(epoch: int, assigned: Assignment) -> CurrentAssignmentValue:
    return CurrentAssignmentValue(epoch, epoch, MemberState.STABLE, assigned, {})


def _classic(member: ConsumerMember) -> ClassicProtocols:
    assert member.classic is not None
    return member.classic


def _common_protocol(members: list[ClassicProtocols]) -> str:
    """First member's preferred protocol among those that all members support. There always is one, because a
    join without one is refused.
    """
    names = [[name for name, _ in member.protocols] for member in members]
    return next(name for name in names[0] if all(name in others for others in names))


def _classic_member(member: ConsumerMember, protocol_name: str, assignment: bytes) -> ClassicMember:
    classic = _classic(member)
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.value.instance_id,
        client_id=member.value.client_id,
        client_host=member.value.client_host,
        rebalance_timeout_ms=member.value.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        subscription=dict(classic.protocols)[protocol_name],
        assignment=assignment,
    )
