"""The auditor of groups: it fetches every offset after every restart, and in peace waits until all members
are served.

A coordinator that loads must respond with COORDINATOR_LOAD_IN_PROGRESS; any other response counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import GroupState
from simulation.clients.client import SimulatedClient
from simulation.groups.group_client import GroupClient
from simulation.groups.group_member import GroupMember
from simulation.models.group_model import GroupModel, Place
from simulation.models.history import InvariantViolated
from simulation.models.offset_model import ShownOffset
from simulation.models.topic_model import TopicState
from simulation.scenarios.stage import Stage

LONG_SESSION_MS = 15_000
"""A session timeout that is longer than a restart with its audit."""
_LOADING_SECONDS = 20.0
_REPORTS = 3


class GroupAuditor:
    def __init__(self, stage: Stage, client: SimulatedClient) -> None:
        self._stage = stage
        self._client = client
        self._coordinator = GroupClient(client)

    async def audit(self) -> None:
        """Check every committed offset after a restart, before clients are let in."""
        for group in self._stage.groups:
            is_lost = group.is_weak and self._stage.broker.cache_lost
            if is_lost:
                group.on_loss()
            for place in group.places:
                if place.topic.state is TopicState.ALIVE:
                    began = group.now()
                    shown = await self._offset(group, place)
                    self._stage.note("auditor", "offset", group.name, place, shown)
                    group.on_audit(place, shown, began, is_lost=is_lost)

    async def _offset(self, group: GroupModel, place: Place) -> ShownOffset | None:
        topic_id = await self._stage.topic_id(self._client, place.topic)
        assert topic_id is not None
        deadline = self._stage.world.loop.time() + _LOADING_SECONDS
        while True:
            try:
                return await self._coordinator.fetch_offset(
                    group.name, place.topic.name, topic_id, place.partition
                )
            except BrokerError as error:
                is_loading = error.code is ErrorCode.coordinator_load_in_progress
                if error.code is ErrorCode.not_coordinator and not group.knows_anything:
                    return None  # no client had asked for a coordinator yet
                if not is_loading or self._stage.world.loop.time() > deadline:
                    raise InvariantViolated("I12", f"{group.name} is not served: {error!r}") from error
                await asyncio.sleep(0.01)

    # --- peace

    async def wait_for_members(self, members: list[GroupMember]) -> None:
        """Wait until the members that are alive have read and committed everything."""
        await self.wait_for(self._stage.groups, members)

    async def wait_for(self, groups: Sequence[GroupModel], members: Sequence[GroupMember]) -> None:
        for group in groups:
            own = [member for member in members if member.group is group]
            patience, farthest = 4 * group.session_ms / 1000 + 60, -1
            deadline = 0.0
            while not await self._is_at_rest(group, own):
                committed = sum(member.committed_offsets for member in own)
                if committed > farthest:  # a slow reader may need longer, as long as it makes progress
                    deadline, farthest = self._stage.world.loop.time() + patience, committed
                if self._stage.world.loop.time() > deadline:
                    state = await self._describe(group)
                    raise InvariantViolated("I13", f"{group.name} does not come to rest: {state}")
                await asyncio.sleep(0.2)

    async def _is_at_rest(self, group: GroupModel, members: list[GroupMember]) -> bool:
        alive = [
            member for member in members if member.is_alive
        ]  # the last member may still be about to leave
        return not alive or (self._is_served(group, alive) and await self._is_stable(group))

    def _is_served(self, group: GroupModel, members: list[GroupMember]) -> bool:
        wanted = {
            Place(topic, partition)
            for topic in self._stage.living_topics()
            if topic.name in group.topics
            for partition in range(len(topic.partitions))
        }
        held = [place for member in members for place in member.held]
        return set(held) == wanted and len(held) == len(wanted) and all(member.is_done for member in members)

    async def _is_stable(self, group: GroupModel) -> bool:
        return (await self._describe(group)).startswith(GroupState.STABLE)

    async def describe(self, members: list[GroupMember]) -> dict[str, str]:
        """Describe the groups that have members whose session outlasts a restart."""
        lasting = {member.group for member in _lasting(members)}
        return {group.name: await self._describe(group) for group in self._stage.groups if group in lasting}

    async def _describe(self, group: GroupModel) -> str:
        while True:
            try:
                return await self._coordinator.describe(group.name)
            except BrokerError as error:
                if error.code is not ErrorCode.coordinator_load_in_progress:
                    raise
                await asyncio.sleep(0.01)

    async def check_unchanged(self, before: dict[str, str], members: list[GroupMember]) -> None:
        for name, now in (await self.describe(members)).items():
            if now != before[name]:
                raise InvariantViolated("restart", f"{name} was {before[name]} and is {now}")

    async def check_undisturbed(self, members: list[GroupMember]) -> None:
        """Check that members of a group are in it after a restart, without a rebalance."""
        lasting = _lasting(members)
        if not lasting:
            return
        before = [member.rebalances for member in lasting]
        await asyncio.sleep(_REPORTS * self._stage.report_seconds + 1.0)
        for member, rebalances in zip(lasting, before, strict=True):
            if member.rebalances != rebalances or not member.is_done:
                raise InvariantViolated("restart", f"{member.name} was disturbed by a restart")


def _lasting(members: list[GroupMember]) -> list[GroupMember]:
    """Return the members whose session outlasts a restart."""
    return [member for member in members if member.is_alive and member.group.session_ms >= LONG_SESSION_MS]
