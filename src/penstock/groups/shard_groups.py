"""The groups of a shard by group id: found, created at the first request, converted between classic and
consumer groups, and removed.

Groups that have records in the log are created, changed and removed by `apply` only, live and in a replay. A
group without records (its first rebalance is in progress, or it only has offsets) is created by `add_classic`
or by a heartbeat. The returned steps contain the records of a conversion; the shard appends them. Used by
`shard` and `shard_state` alone.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.groups import conversion
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeats import check_heartbeat
from penstock.groups.consumer.member import JOIN_EPOCH
from penstock.groups.context import GroupContext
from penstock.groups.group import ConsumerHeartbeat, CoordinatedGroup, GroupKind, GroupStep, ShareHeartbeat
from penstock.groups.records import (
    ClassicGroupKey,
    ConsumerGroupKey,
    GroupRecord,
    Key,
    ShareCurrentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
    ShareTopicsKey,
)
from penstock.groups.share.group import ShareGroup

_SHARE_KEYS = (
    ShareCurrentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
    ShareTopicsKey,
)


class ShardGroups(dict[str, CoordinatedGroup]):
    def __init__(self, context: GroupContext) -> None:
        super().__init__()
        self._context = context

    def apply(self, record: GroupRecord) -> None:
        """Create, change or remove the group that a record belongs to. A record with a value replaces a group
        of another kind.
        """
        key, is_tombstone = record.key, record.value is None
        kind = _kind_of(key)
        group = self.get(key.group_id)
        if group is None or group.kind is not kind:
            if is_tombstone:
                return
            group = self._add(key.group_id, kind)
        if is_tombstone and isinstance(key, (ClassicGroupKey, ConsumerGroupKey, ShareGroupKey)):
            del self[key.group_id]
        else:
            group.apply(record)

    def _apply_all(self, records: list[GroupRecord]) -> list[GroupRecord]:
        for record in records:
            self.apply(record)
        return records

    def remove(self, group_id: str) -> list[GroupRecord]:
        """Remove the group and return its tombstones."""
        return self._apply_all(self[group_id].tombstones())

    def existing(self, group_id: str) -> CoordinatedGroup:
        group = self.get(group_id)
        if group is None:
            raise no_group(group_id)
        return group

    def add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._context.settings, self._context.wall_ms)
        self[group_id] = group
        return group

    def _add_consumer(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self._context.settings, self._context.wall_ms)
        self[group_id] = group
        return group

    def _add(self, group_id: str, kind: GroupKind) -> CoordinatedGroup:
        if kind is GroupKind.CLASSIC:
            return self.add_classic(group_id)
        return self._add_consumer(group_id) if kind is GroupKind.CONSUMER else self._add_share(group_id)

    def _add_share(self, group_id: str) -> ShareGroup:
        group = ShareGroup(group_id, self._context.settings, self._context.wall_ms)
        self[group_id] = group
        return group

    def for_share_heartbeat(self, group_id: str, request: ShareHeartbeat, has_offsets: bool) -> ShareGroup:
        """Return the share group, which its first member creates. BrokerError if the id belongs to a group of
        another kind.

        `has_offsets` is True if consumers have committed offsets under this id.
        """
        group = self.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if request.member_epoch != JOIN_EPOCH or has_offsets or (group is not None and not group.is_blank):
            raise no_group(group_id)
        return self._add_share(group_id)

    def for_join(self, group_id: str) -> tuple[CoordinatedGroup, GroupStep]:
        """Return the group for a JoinGroup request, with the step that results from replacing an empty
        consumer group. A missing group is created.
        """
        group = self.get(group_id)
        if group is not None and not (isinstance(group, ConsumerGroup) and group.is_empty):
            return group, GroupStep()
        replaced = GroupStep() if group is None else GroupStep(self.remove(group_id))
        return self.add_classic(group_id), replaced

    def for_consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, now_ms: int
    ) -> tuple[ConsumerGroup, GroupStep]:
        """Return the consumer group for a heartbeat, with the step that results from replacing or converting
        a classic group. BrokerError if the group does not exist and the member does not join, or if it cannot
        be converted.
        """
        group = self.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, GroupStep()
        if request.member_epoch != JOIN_EPOCH:
            raise no_group(group_id)
        context = self._context
        check_heartbeat(request, context.settings)
        if group is None:
            return self._add_consumer(group_id), GroupStep()
        if isinstance(group, ShareGroup):
            raise no_group(group_id)
        if group.is_empty:
            tombstones = self.remove(group_id)
            return self._add_consumer(group_id), GroupStep(tombstones)
        assert isinstance(group, ClassicGroup)
        records = self._apply_all(conversion.upgrade(group, context.image, context.settings))
        answers = group.give_up(ErrorCode.rebalance_in_progress).answers
        consumer = self[group_id]
        assert isinstance(consumer, ConsumerGroup)
        consumer.loaded(context.image, now_ms)
        return consumer, GroupStep(records, answers)

    def downgrade_if_due(self, group_id: str, now_ms: int) -> GroupStep:
        group = self[group_id]
        if not (isinstance(group, ConsumerGroup) and group.must_downgrade):
            return GroupStep()
        step = GroupStep(self._apply_all(conversion.downgrade(group, self._context.wall_ms())))
        classic = self[group_id]
        assert isinstance(classic, ClassicGroup)
        classic.loaded(self._context.image, now_ms)
        step += classic.prepare_rebalance(now_ms)
        return step


def _kind_of(key: Key) -> GroupKind:
    if isinstance(key, ClassicGroupKey):
        return GroupKind.CLASSIC
    return GroupKind.SHARE if isinstance(key, _SHARE_KEYS) else GroupKind.CONSUMER


def no_group(group_id: str) -> BrokerError:
    return BrokerError(ErrorCode.group_id_not_found, f"there is no group {group_id[:80]!r}")
