"""One seed, from beginning to end: a broker, its clients and its nemesis, restart after restart, then peace.

Everything is drawn from the seed: run it again and the same happens. Ends with an exception when the broker
broke a promise, else with what was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.simulation.administering import TOPIC_NAMES, AdminActor
from penstock.simulation.auditing import Auditor
from penstock.simulation.broker_host import BrokerHost, broker_settings
from penstock.simulation.client import NoAnswer
from penstock.simulation.consuming import BrowserActor, FollowerActor
from penstock.simulation.group_administering import GroupAdminActor
from penstock.simulation.group_auditing import LONG_SESSION_MS
from penstock.simulation.group_member import GroupMember
from penstock.simulation.group_model import GroupModel, Protocols
from penstock.simulation.history import InvariantViolated
from penstock.simulation.host import SimulatedWorld
from penstock.simulation.loop import SimulationLoop
from penstock.simulation.nemesis import Nemesis
from penstock.simulation.process import SimulatedCrash
from penstock.simulation.producing import ProducerActor
from penstock.simulation.running import Report
from penstock.simulation.stage import Stage
from penstock.simulation.trace import Trace

_START_ATTEMPTS = 6
_START_SECONDS = 120.0
_STOP_SECONDS = 120.0


class _Actor(Protocol):
    name: str

    async def step(self) -> None: ...


class BrokerScenario:
    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        self._world = SimulatedWorld(seed, loop, trace)
        self._random = self._world.random("scenario")
        self._broker = BrokerHost(self._world, "broker", broker_settings(self._random))
        self._stage = Stage(self._world, self._broker)
        self._auditor = Auditor(self._stage)
        self._nemesis = Nemesis(self._stage)
        self._admin = AdminActor(self._stage)
        self._members = self._draw_groups()
        self._lives = 0

    async def run(self) -> Report:
        await self._begin_life()
        await self._admin.create_first_topics()
        members = [asyncio.ensure_future(self._act(member)) for member in self._members]
        actors = [asyncio.ensure_future(actor) for actor in self._actors()]
        try:
            await self._racing(self._live(), actors + members)
            await _end(actors)
            await self._racing(self._rest(), members)
        finally:
            await _end(actors + members)
        loop, trace = self._world.loop, self._world.trace
        return Report(
            self._world.seed, trace.digest(), trace.events, self._stage.operations, self._lives, loop.time()
        )

    async def _racing(self, main: Coroutine[Any, Any, None], actors: list[asyncio.Task[None]]) -> None:
        """Run `main` to its end, unless an actor finds a broken promise before."""
        task = asyncio.ensure_future(main)
        await asyncio.wait([task, *actors], return_when=asyncio.FIRST_COMPLETED)
        for actor in actors:
            if actor.done():
                task.cancel()
                actor.result()
        await task

    async def _live(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            await self._nemesis.disturb()
            await self._end_life(self._nemesis.end_life())
            await self._begin_life()
        await self._nemesis.disturb()
        await self._end_life(self._nemesis.end_life())

    async def _end_life(self, ending: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await ending
        except TimeoutError:
            raise InvariantViolated("liveness", "the broker does not stop") from None
        self._stage.close_gate()
        for group in self._stage.groups:
            group.on_death()
        self._check_problems()

    async def _begin_life(self) -> None:
        """Start the broker on what is there, read and judge everything, then let the clients in."""
        for attempt in range(_START_ATTEMPTS):
            self._nemesis.before_start(attempt)
            self._lives += 1
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self._broker.start()
                break
            except SimulatedCrash:
                self._nemesis.after_crash_at_start()
            except TimeoutError:
                raise InvariantViolated("liveness", "the broker does not start") from None
        self._broker.host.disk.faults.heal()
        await self._auditor.audit()
        self._check_problems()
        self._stage.gate.set()

    async def _rest(self) -> None:
        """Nothing is broken any more: everything works, and is still there after a clean stop."""
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
        """Nobody may notice."""
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
        producer = ProducerActor(self._stage, 99)
        for topic in self._stage.living_topics():
            for partition in range(len(topic.partitions)):
                await producer.prove_alive(topic, partition)

    def _draw_groups(self) -> list[GroupMember]:
        """Not every seed has groups, so that the others have time for more of the rest."""
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

    def _actors(self) -> list[Coroutine[Any, Any, None]]:
        actors: list[_Actor] = [self._admin]
        actors += [ProducerActor(self._stage, number) for number in range(self._random.randint(1, 4))]
        actors += [FollowerActor(self._stage, number) for number in range(self._random.randint(0, 2))]
        actors += [BrowserActor(self._stage, number) for number in range(self._random.randint(0, 2))]
        if self._stage.groups:
            actors.append(GroupAdminActor(self._stage))
        return [self._act(actor) for actor in actors]

    async def _act(self, actor: _Actor) -> None:
        random = self._world.random(f"{actor.name}/pace")
        pause_seconds = random.choice((0.02, 0.05)) if actor is not self._admin else 0.1
        while True:
            await asyncio.sleep(random.expovariate(1 / pause_seconds))
            try:
                await actor.step()
            except (NoAnswer, BrokerError) as error:
                self._stage.note(actor.name, "step", type(error).__name__)
                self._check_answer(actor, error)

    def _check_answer(self, actor: _Actor, error: NoAnswer | BrokerError) -> None:
        if isinstance(error, BrokerError) and error.code is ErrorCode.unknown_server_error:
            raise InvariantViolated("T27", f"{actor.name} got UNKNOWN_SERVER_ERROR") from error
        if self._stage.is_at_rest and isinstance(error.__cause__, TimeoutError):
            raise InvariantViolated("liveness", f"{actor.name} gets no answer in peace") from error

    def _check_problems(self) -> None:
        if self._broker.problems:
            raise InvariantViolated("traceback", "\n".join(self._broker.problems))
        for context in self._world.loop.unhandled:
            error = context.get("exception")
            raise InvariantViolated("traceback", f"nobody caught: {context['message']}: {error!r}") from error


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
