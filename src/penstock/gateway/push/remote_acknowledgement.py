"""Acknowledgements for streams that are not here: another gateway has them, or they have ended.

What the group has committed is moved on, never back, in the name of the stream that has the partition now, or of nobody
where the group has no members. A partition that another kind of consumer reads is that one's business.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.context import CLIENT_ID
from penstock.gateway.push.position import Positions
from penstock.internal_client.group_membership import GroupMembership, MemberIdentity
from penstock.internal_client.routes import TopicRoute

_CHANGED = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
    }
)
"""Somebody else has it now."""


async def acknowledge_elsewhere(
    coordinator: GroupMembership, group: str, topic: TopicRoute, positions: Positions
) -> set[int]:
    """The partitions of which the group is this far, now or before."""
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
        return {}  # of the classic protocol, or there is none yet
