"""The groups of a shard, by id: found, made when first asked for, made anew as one of the other kind.

What that takes out of or puts into the log is in the steps; the shard writes it. Only a shard has one.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import BrokerError, ErrorCode
from penstock.groups import conversion
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_heartbeats import check_heartbeat
from penstock.groups.consumer_member import JOIN_EPOCH
from penstock.groups.group import ConsumerHeartbeat, Group, Step
from penstock.groups.surroundings import Surroundings


class Roster(dict[str, Group]):
    def __init__(self, groups: Mapping[str, Group], surroundings: Surroundings) -> None:
        super().__init__(groups)
        self._around = surroundings

    def existing(self, group_id: str) -> Group:
        group = self.get(group_id)
        if group is None:
            raise no_group(group_id)
        return group

    def add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._around.settings, self._around.wall_ms)
        self[group_id] = group
        return group

    def for_join(self, group_id: str) -> tuple[Group, Step]:
        """The group, made or remade where it must be, and what comes of that."""
        group = self.get(group_id)
        if group is not None and not (isinstance(group, ConsumerGroup) and group.is_empty):
            return group, Step()
        replaced = Step() if group is None else Step(group.tombstones())
        return self.add_classic(group_id), replaced

    def for_consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, now_ms: int
    ) -> tuple[ConsumerGroup, Step]:
        """As `for_join`. BrokerError where there is no group to join, or it cannot become one of this kind."""
        group = self.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, Step()
        if request.member_epoch != JOIN_EPOCH:
            raise no_group(group_id)
        around = self._around
        check_heartbeat(request, around.settings)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            consumer, records = conversion.upgrade(
                group, around.image, around.settings, around.wall_ms, now_ms
            )
            replaced = Step(records, group.give_up(ErrorCode.rebalance_in_progress).answers)
        else:
            consumer = ConsumerGroup(group_id, around.settings, around.wall_ms)
            replaced = Step() if group is None else Step(group.tombstones())
        self[group_id] = consumer
        return consumer, replaced

    def downgrade_if_due(self, group_id: str, now_ms: int) -> Step:
        group = self[group_id]
        if not (isinstance(group, ConsumerGroup) and group.must_downgrade):
            return Step()
        around = self._around
        self[group_id], step = conversion.downgrade(group, around.settings, around.wall_ms, now_ms)
        return step


def no_group(group_id: str) -> BrokerError:
    return BrokerError(ErrorCode.group_id_not_found, f"there is no group {group_id[:80]!r}")
