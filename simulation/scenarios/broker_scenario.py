"""One seed of a broker alone: the broker with its clients and faults, restart after restart, then peace.

After every start an auditor reads everything before the clients are let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from penstock.errors import BrokerError
from simulation.checks.auditor import Auditor
from simulation.clients.actor import Actor
from simulation.clients.administrator import Administrator
from simulation.clients.client import NoAnswer
from simulation.clients.producer import Producer
from simulation.clients.readers import Browser, PartitionFollower
from simulation.clients.topic_drafts import TOPIC_NAMES
from simulation.faults.broker_nemesis import Nemesis
from simulation.groups.group_admin import GroupAdminActor
from simulation.groups.group_auditor import LONG_SESSION_MS
from simulation.groups.group_member import GroupMember
from simulation.machine.loop import SimulationLoop
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace
from simulation.models.group_model import GroupModel, Protocols
from simulation.models.history import InvariantViolated
from simulation.scenarios.scenario import Report, Scenario
from simulation.scenarios.setup import set_up_broker

_START_ATTEMPTS = 6
_STOP_SECONDS = 120.0


class BrokerScenario(Scenario):
    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        super().__init__(seed, loop, trace)
        self._stage = set_up_broker(self._world, self._random).stage
        self._broker = self._stage.broker
        self._auditor = Auditor(self._stage)
        self._nemesis = Nemesis(self._stage)
        self._admin = Administrator(self._stage)
        self._members = self._draw_groups()

    @property
    def traits(self) -> frozenset[str]:
        groups = {"groups"} if self._members else set()
        return self._nemesis.faults | {self._broker.settings["durability"]} | groups

    async def run(self) -> Report:
        await self._begin_life()
        await self._admin.create_first_topics()
        members = self._begin(self._members)
        actors = self._begin(self._actors())
        try:
            await self._racing(self._live(), actors + members)
            await self._end(actors)
            await self._racing(self._rest(), members)
        finally:
            await self._end(actors + members)
        return self._report()

    async def _live(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            await self._nemesis.disturb()
            await self._end_life(self._nemesis.end_life())
            await self._begin_life()
        await self._nemesis.disturb()
        await self._end_life(self._nemesis.end_life())

    async def _end_life(self, ending: Coroutine[Any, Any, None]) -> None:
        """Have the process end, and keep the clients out."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await ending
        except TimeoutError:
            raise InvariantViolated("liveness", "the broker does not stop") from None
        self._stage.close_gate()
        for group in self._stage.groups:
            group.on_death()
        self._check_problems([self._broker])

    async def _begin_life(self) -> None:
        """Start the broker on what is there, read and judge everything, then let the clients in."""
        for attempt in range(_START_ATTEMPTS):
            self._nemesis.before_start(attempt)
            try:
                await self._start_broker(self._broker)
                break
            except SimulatedCrash:
                self._nemesis.after_crash_at_start()
        self._broker.host.disk.faults.heal()
        await self._auditor.audit_restart()
        self._check_problems([self._broker])
        self._stage.gate.set()

    # --- peace

    async def _rest(self) -> None:
        """Mend everything: every partition takes a write, and nothing changes over a clean stop and a power loss."""
        await self._begin_life()
        self._world.network.heal()
        self._broker.host.disk.faults.cold_reads = 0.0
        await self._prove_alive()
        self._stage.is_at_rest, self._stage.report_seconds = True, 0.5
        await self._auditor.groups.wait_for_members(self._members)
        await self._restart(self._stop_and_lose_power())
        if self._members and not self._broker.is_weak:
            await self._restart(self._lose_power())
        await self._end_life(self._broker.stop())

    async def _restart(self, ending: Coroutine[Any, Any, None]) -> None:
        """Restart the broker; groups and their members must not notice."""
        groups = self._auditor.groups
        described = await groups.describe(self._members)
        await self._end_life(ending)
        await self._begin_life()
        await groups.check_unchanged(described, self._members)
        await groups.check_undisturbed(self._members)

    async def _stop_and_lose_power(self) -> None:
        await self._broker.stop()
        self._broker.lose_power_while_stopped()

    async def _lose_power(self) -> None:
        self._broker.power_loss()

    async def _prove_alive(self) -> None:
        """Every partition takes a write and shows it."""
        producer = Producer(self._stage, 99)
        for topic in self._stage.living_topics():
            for partition in range(len(topic.partitions)):
                await producer.prove_alive(topic, partition)

    # --- clients

    def _draw_groups(self) -> list[GroupMember]:
        """Two seeds in five have groups; the others have more time for the rest."""
        random = self._world.random("groups")
        if random.random() < 0.6:
            return []
        consumer_session_ms = int(self._broker.settings["group.consumer.session.timeout.ms"])
        members: list[GroupMember] = []
        for number in range(random.randint(1, 2)):
            protocols = random.choice(list(Protocols))
            session_ms = random.choice((1_500, LONG_SESSION_MS))
            if protocols is not Protocols.CLASSIC:
                session_ms = consumer_session_ms
            topics = random.sample(TOPIC_NAMES, random.randint(1, len(TOPIC_NAMES)))
            group = GroupModel(f"group-{number}", protocols, topics, session_ms, is_weak=self._broker.is_weak)
            self._stage.groups.append(group)
            members += [GroupMember(self._stage, group, place) for place in range(random.randint(1, 4))]
        return members

    def _actors(self) -> list[Actor]:
        actors: list[Actor] = [self._admin]
        actors += [Producer(self._stage, number) for number in range(self._random.randint(1, 4))]
        actors += [PartitionFollower(self._stage, number) for number in range(self._random.randint(0, 2))]
        actors += [Browser(self._stage, number) for number in range(self._random.randint(0, 2))]
        if self._stage.groups:
            actors.append(GroupAdminActor(self._stage))
        return actors

    def _pause_seconds(self, actor: Actor, random: Random) -> float:
        return random.choice((0.02, 0.05)) if actor is not self._admin else 0.1

    def _check_answer(self, actor: Actor, error: NoAnswer | BrokerError) -> None:
        super()._check_answer(actor, error)
        if self._stage.is_at_rest and isinstance(error.__cause__, TimeoutError):
            raise InvariantViolated("liveness", f"{actor.name} gets no answer in peace") from error
