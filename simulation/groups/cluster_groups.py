"""Consumer groups of a simulated cluster: their members live through failovers of coordinators and leaders.

Responses of the recorded coordinator are checked as for a broker alone (`group_model`). In peace every
group with members comes to rest, with every partition read and committed to its end.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.client import NoAnswer
from simulation.clients.readers import EARLIEST
from simulation.groups.group_auditor import GroupAuditor
from simulation.groups.group_client import GroupClient
from simulation.groups.group_connections import GroupConnections
from simulation.groups.group_member import GroupMember
from simulation.models.group_model import GroupModel, Protocols
from simulation.models.history import InvariantViolated, ReadRange
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

SESSION_MS = 1_500
_TOPICS = tuple(f"topic-{number}" for number in range(4))
_MAX_BYTES = (2_000, 100_000)
_STEP_SECONDS = 0.05


class ClusterGroupMember(GroupMember):
    def __init__(self, stage: Stage, group: GroupModel, number: int) -> None:
        super().__init__(stage, group, number)
        self._client = self._connections = GroupConnections(stage, self.name, group.name)
        self._coordinator = GroupClient(self._client)

    async def fetch(self, topic: TopicModel, partition: int, offset: int) -> ReadRange | None:
        """Fetch from an offset; None where it is out of range or its records are damaged at present."""
        model = topic.partitions[partition]
        was_damaged = self._stage.is_damaged(topic.name, partition)
        max_bytes = self._random.choice(_MAX_BYTES)
        try:
            leader, epoch = await self._connections.leader(topic.name, partition)
            result = await leader.fetch(
                topic.name, partition, offset, max_bytes=max_bytes, max_wait_ms=0, leader_epoch=epoch
            )
        except NoAnswer:
            self._connections.mistrust(topic.name, partition)
            raise
        except BrokerError as error:
            self._connections.mistrust(topic.name, partition)
            self._stage.note(self.name, "fetch", model.name, offset, error.code.name)
            if error.code is ErrorCode.offset_out_of_range and model.may_expire:
                return None
            if error.code is ErrorCode.offset_out_of_range and topic.state is TopicState.ALIVE:
                raise InvariantViolated("I5", f"{model.name}: {offset} is out of range") from error
            raise
        read = self.decode(topic, partition, offset, result, was_damaged=was_damaged)
        if read is not None:
            self._stage.note(self.name, "fetch", model.name, offset, read.end, result.high_watermark)
            topic.on_read(partition, read)
        return read

    async def _earliest(self, topic: TopicModel, partition: int) -> int:
        try:
            leader, epoch = await self._connections.leader(topic.name, partition)
            return (await leader.list_offset(topic.name, partition, EARLIEST, epoch)).offset
        except (BrokerError, NoAnswer):
            self._connections.mistrust(topic.name, partition)
            raise


class ClusterGroups:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        random = stage.world.random("groups")
        self.members: list[ClusterGroupMember] = []
        for number in range(random.randint(1, 2)):
            name = f"members-{number}"
            topics = random.sample(_TOPICS, random.randint(1, len(_TOPICS)))
            group = GroupModel(name, random.choice(list(Protocols)), topics, SESSION_MS, is_weak=False)
            stage.groups.append(group)
            self.members += [ClusterGroupMember(stage, group, place) for place in range(random.randint(1, 4))]

    async def audit(self) -> None:
        """Let members act in peace until their groups have come to rest."""
        acting = [asyncio.ensure_future(self._act(member)) for member in self.members]
        waiting = asyncio.ensure_future(self._wait())
        try:
            await asyncio.wait([waiting, *acting], return_when=asyncio.FIRST_COMPLETED)
            for task in acting:
                if task.done():
                    task.result()
            await waiting
        finally:
            for task in [waiting, *acting]:
                task.cancel()
            await asyncio.gather(waiting, *acting, return_exceptions=True)

    async def _act(self, member: ClusterGroupMember) -> None:
        while True:
            await asyncio.sleep(_STEP_SECONDS)
            try:
                await member.step()
            except (NoAnswer, BrokerError) as error:
                self._stage.note(member.name, "step", type(error).__name__, error)

    async def _wait(self) -> None:
        for group in self._stage.groups:
            connections = GroupConnections(self._stage, f"{group.name}/auditor", group.name)
            auditor = _Auditor(self._stage, connections)
            await auditor.wait_for([group], list(self.members))


class _Auditor(GroupAuditor):
    async def _describe(self, group: GroupModel) -> str:
        """Describe a group; empty while its coordinator changes."""
        try:
            await self._coordinator.find(group.name)
            return await self._coordinator.describe(group.name)
        except (BrokerError, NoAnswer):
            return ""
