"""Faults that leave one replica in charge: the others die, and then the last one loses its power or its data.

A leader that is alone in sync must have fsynced what it commits. Under min ISR it commits nothing, and
eligible leaders recorded beside the in-sync set take over when it has lost its data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from penstock.cluster import znodes
from simulation.faults.data_faults import DataFaults
from simulation.faults.machine_faults import MachineFaults
from simulation.faults.outages import Outages
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

_COMMIT_SECONDS = 0.5
"""Seconds in which a sole leader may commit something before it loses power."""


class SoleLeaderFaults:
    def __init__(
        self,
        stage: Stage,
        outages: Outages,
        machine: MachineFaults,
        data: DataFaults,
        committed: Callable[[Place], int],
        random: Random,
        losses: Random,
    ) -> None:
        """`committed` tells the greatest high watermark that a leader of a partition ever had; `losses` is
        the random stream of faults that come with a trait.
        """
        self._stage = stage
        self._outages = outages
        self._machine = machine
        self._data = data
        self._committed = committed
        self._random = random
        self._losses = losses

    async def leave_one(self, _: BrokerHost) -> None:
        """Crash all in-sync followers of a partition; when its leader has committed something alone, it loses
        power.
        """
        led = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr and self._takes_writes_alone(place[0])
        ]
        if not led:
            return
        place, state = self._random.choice(led)
        await self._leave(place, state, (self._stage.member(state.leader),))

    async def leave_machine(self, _: BrokerHost) -> None:
        """Crash all in-sync replicas on other machines; when the leader has committed something, its machine
        loses power.
        """
        shared = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr
            and len(self._in_sync_on_machine(state)) > 1
            and place[0] in self._stage.topics
        ]
        if shared:
            place, state = self._random.choice(shared)
            await self._leave(place, state, self._in_sync_on_machine(state))

    def _in_sync_on_machine(self, state: znodes.PartitionNode) -> list[BrokerHost]:
        """Return the in-sync replicas on the machine of the leader."""
        leader = self._stage.member(state.leader)
        return [member for member in leader.machine_members if member.node_id in state.isr]

    async def _leave(self, place: Place, state: znodes.PartitionNode, staying: Sequence[BrokerHost]) -> None:
        leader = self._stage.member(state.leader)
        for other in map(self._stage.member, state.isr):
            if other not in staying:
                self._outages.keep_down(other)
                other.down_until += 2 * self._outages.session_seconds
                self._outages.end(other)
        if self._random.random() < 0.6:
            await self._machine.slow_down(leader)
        await self._until(lambda: self._is_left_to(staying, place))
        if self._random.random() < 0.5:  # otherwise records from before the in-sync set of one are lost
            await self._until_committed(place)
        await asyncio.sleep(self._random.uniform(0.0, self._random.choice((0.01, 0.03, 0.1))))
        if self._is_left_to(staying, place) and self._outages.survival.may_lose_power(leader):
            self._stage.world.trace.record("fault", "last power", leader.host.name)
            leader.power_loss()

    async def _until_committed(self, place: Place) -> None:
        """Wait for the next commit: a power loss right after it shows whether committed records were fsynced."""
        committed = self._committed(place)
        deadline = self._stage.world.loop.time() + _COMMIT_SECONDS
        while self._stage.world.loop.time() < deadline and self._committed(place) == committed:
            await asyncio.sleep(0.01)

    async def lose_last(self, _: BrokerHost) -> None:
        """Crash all in-sync followers of a partition under min ISR; then its leader loses its data, and
        eligible leaders have it.
        """
        led = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr and len(state.isr) > 1 and self._has_eligible_when_alone(place[0])
        ]
        if not led:
            return
        place, state = self._losses.choice(led)
        leader = self._stage.member(state.leader)
        copy, committed = await self._data.copy(leader), self._committed(place)
        if not await self._until(lambda: leader.is_serving and self._committed(place) > committed):
            return
        others = [
            member
            for member in self._stage.members
            if self._is_in_sync(member, place) and member is not leader
        ]
        for other in others:
            other.down_until = self._stage.world.loop.time() + 3 * self._outages.session_seconds
            self._outages.end(other)
        if await self._until(lambda: self._is_left_to((leader,), place)):
            self._data.lose_directory(leader, copy)
        for other in others:
            other.down_until = 0.0

    def _is_in_sync(self, member: BrokerHost, place: Place) -> bool:
        state = self._stage.history.now.get(place)
        return state is not None and member.node_id in state.isr

    def _has_eligible_when_alone(self, topic: str) -> bool:
        model = self._stage.topics.get(topic)
        return model is not None and model.min_insync_replicas > 1

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for up to two session timeouts; return whether the condition holds."""
        deadline = self._stage.world.loop.time() + 2 * self._outages.session_seconds
        while self._stage.world.loop.time() < deadline and not condition():
            await asyncio.sleep(0.01)
        return condition()

    def _takes_writes_alone(self, topic: str) -> bool:
        model = self._stage.topics.get(topic)
        return model is not None and model.min_insync_replicas == 1

    def _is_left_to(self, members: Sequence[BrokerHost], place: Place) -> bool:
        """Whether no other broker is in sync."""
        state = self._stage.history.now.get(place)
        return state is not None and set(state.isr) <= {member.node_id for member in members}
