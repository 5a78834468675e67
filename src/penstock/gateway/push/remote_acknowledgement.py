"""Acknowledgements for streams that are served by another gateway, or that have ended.

The offset is committed in the name of the member that owns the partition now, or without a member if the group
is empty. Committed offsets are moved forward, never back. Partitions that are owned by other consumers than
gateways are not changed.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.context import CLIENT_ID
from penstock.gateway.push.position import Positions
from penstock.internal_client.group_membership import GroupMembership, MemberIdentity
from penstock.internal_client.topic_routes import TopicRoute

_CHANGED = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
    }
)
"""Errors of a commit that mean that another member owns the partition now."""


async def acknowledge_elsewhere(
    coordinator: GroupMembership, group: str, topic: TopicRoute, positions: Positions
) -> set[int]:
    """Commit the positions. Returns the partitions whose committed offset is at the position or beyond it."""
    nobody = MemberIdentity.nobody(group)
    committed = await coordinator.committed(nobody, topic.id, sorted(positions))
    done = {partition for partition, offset in positions.items() if offset <= committed.get(partition, -1)}
    owners = await _owners(coordinator, group, topic)
    by_owner: dict[MemberIdentity, dict[int, int]] = {}
    for partition in positions.keys() - done:
        by_owner.setdefault(owners.get(partition, nobody), {})[partition] = positions[partition]
    for owner, offsets in by_owner.items():
        try:
            await coordinator.commit(owner, topic.id, offsets)
        except BrokerError as error:
            if error.code not in _CHANGED:
                raise
        else:
            done |= offsets.keys()
    return done


async def _owners(coordinator: GroupMembership, group: str, topic: TopicRoute) -> dict[int, MemberIdentity]:
    try:
        return await coordinator.owners(group, topic.id, CLIENT_ID)
    except BrokerError as error:
        if error.code is not ErrorCode.group_id_not_found:
            raise
        return {}  # the group uses the classic protocol, or does not exist yet
