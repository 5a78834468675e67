"""The groups of a shard by group id: found, created at the first request, and converted between the two
kinds.

The steps hold the records of a conversion; the shard appends them. Used by `shard` alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import BrokerError, ErrorCode
from penstock.groups import conversion
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeats import check_heartbeat
from penstock.groups.consumer.member import JOIN_EPOCH
from penstock.groups.context import GroupContext
from penstock.groups.group import ConsumerHeartbeat, Group, Step


class ShardGroups(dict[str, Group]):
    def __init__(self, groups: Mapping[str, Group], context: GroupContext) -> None:
        super().__init__(groups)
        self._context = context

    def existing(self, group_id: str) -> Group:
        group = self.get(group_id)
        if group is None:
            raise no_group(group_id)
        return group

    def add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._context.settings, self._context.wall_ms)
        self[group_id] = group
        return group

    def for_join(self, group_id: str) -> tuple[Group, Step]:
        """Return the group, created or replaced if necessary, and the step of the replacement."""
        group = self.get(group_id)
        if group is not None and not (isinstance(group, ConsumerGroup) and group.is_empty):
            return group, Step()
        replaced = Step() if group is None else Step(group.tombstones())
        return self.add_classic(group_id), replaced

    def for_consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, now_ms: int
    ) -> tuple[ConsumerGroup, Step]:
        """Return the consumer group, as `for_join`; BrokerError if there is no group to join, or it cannot be
        converted.
        """
        group = self.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, Step()
        if request.member_epoch != JOIN_EPOCH:
            raise no_group(group_id)
        context = self._context
        check_heartbeat(request, context.settings)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            consumer, records = conversion.upgrade(
                group, context.image, context.settings, context.wall_ms, now_ms
            )
            replaced = Step(records, group.give_up(ErrorCode.rebalance_in_progress).answers)
        else:
            consumer = ConsumerGroup(group_id, context.settings, context.wall_ms)
            replaced = Step() if group is None else Step(group.tombstones())
        self[group_id] = consumer
        return consumer, replaced

    def downgrade_if_due(self, group_id: str, now_ms: int) -> Step:
        group = self[group_id]
        if not (isinstance(group, ConsumerGroup) and group.must_downgrade):
            return Step()
        context = self._context
        self[group_id], step = conversion.downgrade(group, context.settings, context.wall_ms, now_ms)
        return step


def no_group(group_id: str) -> BrokerError:
    return BrokerError(ErrorCode.group_id_not_found, f"there is no group {group_id[:80]!r}")
