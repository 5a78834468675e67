"""Schedules in a simulated cluster, and a client that requests firings, pauses and resumes.

In the end all clocks show the latest time, the schedules fire once more and are paused, and the topic is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.schedules import NewSchedule, ScheduleCalls, ScheduleDetails
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from simulation.clients.cast import Cast
from simulation.clients.client import NoAnswer
from simulation.clients.keyed_cast import GatewayConnections
from simulation.clients.retries import retried
from simulation.faults.cluster_traits import CLOCK_JUMPS
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.schedule_model import ScheduleModel
from simulation.scenarios.stage import Stage

T = TypeVar("T")

_SHARE = 0.12
"""The share of seeds with schedules."""
_TOPIC = "ticks"
_STEADY, _PAUSED = "steady", "now-and-then"
_LATEST = -1
_MAX_BYTES = 1_000_000
_PATIENCE_SECONDS = 120.0


class ScheduleCast(Cast):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "schedules", _SHARE)
        random = self._random
        self._model = ScheduleModel(lambda: max(member.host.clock.latest_ms for member in stage.members))
        self._calls = ScheduleCalls(GatewayConnections(stage, "schedules").routes)
        self._places: list[Place] = [(_TOPIC, index) for index in range(random.randint(1, 2))]
        # A jump by hours makes thousands of times pass, of which `all` would make up for a thousand.
        self._catch_up = "one" if CLOCK_JUMPS in stage.traits else random.choice(("all", "all", "one"))

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"scheduled"} if self.is_there else ())

    async def open(self) -> None:
        """Create the topic and the schedules."""
        if not self.is_there:
            return
        create = partial(self.create_topic, _TOPIC, len(self._places), {"min.insync.replicas": "2"}, 3)
        await retried(create, "the topic of schedules is not made")
        for name in (_STEADY, _PAUSED):
            await retried(partial(self._create, name), f"the schedule {name} is not made")
        self._actors = [ScheduleUser(self._stage, self._model)]

    async def _create(self, name: str) -> None:
        new = NewSchedule(name, "@every 1s", _TOPIC, value=name.encode(), catch_up=self._catch_up)
        try:
            await answered(self._calls.create(new))
        except BrokerError as error:
            if error.code is not ErrorCode.duplicate_resource:
                raise
        self._model.created_ms[name] = (await answered(self._calls.describe(name))).created_ms

    def look(self) -> None:
        """Note the time of all clocks."""
        self._model.look()

    async def audit(self) -> None:
        """Let the schedules fire once more, pause them, and check every record of the topic."""
        if not self.is_there:
            return
        self._set_clocks()
        steady = await self._until_idle(_STEADY, self._model.latest_ms)
        await self._until_idle(_PAUSED, 0)
        for place in self._places:
            await retried(partial(self._read, place, [0]), f"{place} cannot be read")
        self._model.check_requested()
        if self._catch_up == "all" and not steady.summary.missed:
            assert steady.summary.last_ms is not None
            self._model.check_gaps(_STEADY, steady.summary.last_ms)

    async def _until_idle(self, name: str, fires_until_ms: int) -> ScheduleDetails:
        """Wait until a schedule has fired for a time, pause it, and wait until nothing is in flight."""
        loop = self._stage.world.loop
        deadline = loop.time() + _PATIENCE_SECONDS
        while True:
            self.look()
            details = await retried(
                lambda: answered(self._calls.describe(name)), f"{name} cannot be described"
            )
            has_fired = (details.summary.last_ms or 0) >= fires_until_ms
            if has_fired and not details.summary.paused:
                await retried(lambda: answered(self._calls.pause(name)), f"{name} cannot be paused")
            elif has_fired and details.in_flight_ms is None and not details.waiting_runs:
                return details
            if loop.time() > deadline:
                raise InvariantViolated("fired", f"{name} does not fire: {details}")
            await asyncio.sleep(0.3)

    def _set_clocks(self) -> None:
        """Set clocks that are behind to the latest time, as an operator would: schedules fire by these clocks."""
        self.look()
        for member in self._stage.members:
            behind_ms = self._model.latest_ms - member.host.clock.now_ms()
            if behind_ms > 0:
                member.host.clock.jump(behind_ms)

    async def _read(self, place: Place, position: list[int]) -> None:
        """Read a partition from a position to its end, and check every record."""
        try:
            leader, epoch = await self._routing.leader(*place)
            end = (await leader.list_offset(*place, _LATEST, epoch)).offset
            while position[0] < end:
                result = await leader.fetch(
                    *place, position[0], max_bytes=_MAX_BYTES, max_wait_ms=0, leader_epoch=epoch
                )
                assert not isinstance(result.records, LogSlice)
                for header, batch in read_batches(memoryview(result.records)):
                    for record in iterate(batch, header):
                        self._model.on_record(f"{place[0]}-{place[1]} {record.offset}", record)
                    position[0] = header.next_offset
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise


class ScheduleUser:
    """Requests firings, and pauses and resumes one of the schedules."""

    def __init__(self, stage: Stage, model: ScheduleModel) -> None:
        self.name = "schedule-user"
        self._stage, self._model = stage, model
        self._random = stage.world.random(self.name)
        self._calls = ScheduleCalls(GatewayConnections(stage, self.name).routes)

    async def step(self) -> None:
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        act = self._random.choice((self._run, self._run, self._pause, self._resume))
        await answered(act())

    async def _run(self) -> None:
        name = self._random.choice((_STEADY, _PAUSED))
        time_ms = await self._calls.run(name)
        self._model.requested.setdefault(name, set()).add(time_ms)
        self._stage.note(self.name, "run", name, time_ms)

    async def _pause(self) -> None:
        await self._calls.pause(_PAUSED)

    async def _resume(self) -> None:
        await self._calls.resume(_PAUSED)


async def answered(work: Awaitable[T]) -> T:
    """Await a call; NoAnswer if no broker responds."""
    try:
        return await work
    except OSError as error:
        raise NoAnswer(str(error)) from error
