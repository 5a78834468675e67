"""One seed of a cluster: three to five brokers with clients and faults, then peace and an audit.

Brokers that die or lose their session are started again, as a service manager would.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from penstock.errors import PenstockError
from simulation.checks.auditor import Auditor
from simulation.checks.commit_time import CommitTime
from simulation.checks.inspector import Inspector
from simulation.clients.actor import Actor
from simulation.clients.administrator import Administrator
from simulation.clients.client_cast import SHRINKING, ClientCast
from simulation.clients.delayed_cast import DelayedCast
from simulation.clients.keyed_cast import KeyedCast
from simulation.clients.producer import Producer
from simulation.clients.readers import LeaderFollower
from simulation.clients.schedule_cast import ScheduleCast
from simulation.clients.view_cast import ViewCast
from simulation.faults.cluster_nemesis import ClusterNemesis
from simulation.faults.cluster_traits import (
    CLOCK_JUMPS,
    SOCKET_STORE,
    STALE_STORE,
)
from simulation.groups.committer import Committer
from simulation.machine.loop import SimulationLoop
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.scenario import Report, Scenario
from simulation.scenarios.setup import set_up_cluster
from simulation.shares.share_cast import ShareCast
from simulation.transactions.transaction_cast import TransactionCast

_LOOK_SECONDS = 0.02
_PEACE_SECONDS = 60.0
_REPAIR_SECONDS = 60.0
"""Seconds for a few passes of the scrub and for a repair that is tried again after 30 seconds."""
_QUICK = 0.02
"""The slowness of threads while a repair is waited for: a scrub rests in proportion to the time its reads take."""
_LAST_STEP_SECONDS = 30.0


class ClusterScenario(Scenario):
    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        super().__init__(seed, loop, trace)
        setup = set_up_cluster(self._world, self._random)
        self._stage, self._durability = setup.stage, setup.setting("durability")
        self._inspector = Inspector(self._stage)
        self._nemesis = ClusterNemesis(
            self._stage, self._durability, setup.session_seconds, self._inspector.committed
        )
        self._stage.is_damaged = lambda *place: place in self._nemesis.data.damaged_places()
        self._commit_time = self._draw_commit_time(
            int(setup.setting("replica.lag.time.max.ms")), setup.session_seconds
        )
        self._transactions = TransactionCast(
            self._stage, self._nemesis.strike, is_shrinking=SHRINKING in setup.client_traits
        )
        self._keyed = KeyedCast(self._stage)
        self._delayed = DelayedCast(self._stage)
        self._schedules = ScheduleCast(self._stage)
        self._shares = ShareCast(self._stage, self._nemesis.strike)
        self._views = ViewCast(self._stage)
        self._clients = ClientCast(self._stage, setup.client_traits)
        self._admin = Administrator(self._stage)
        self._committers = [Committer(self._stage, number) for number in range(self._random.randint(0, 2))]
        self._auditor = Auditor(self._stage)

    @property
    def traits(self) -> frozenset[str]:
        casts = self._transactions.traits | self._keyed.traits | self._shares.traits | self._views.traits
        casts |= self._delayed.traits | self._clients.traits | self._schedules.traits
        return self._nemesis.faults | self._stage.traits | {self._durability} | casts

    def _draw_commit_time(self, lag_ms: int, session_seconds: float) -> CommitTime | None:
        if CLOCK_JUMPS not in self._stage.traits:
            return None
        commit_time = CommitTime(self._stage, lag_ms, session_seconds)
        commit_time.troubled = self._nemesis.troubled
        self._stage.history.may_shrink = self._nemesis.faults != {CLOCK_JUMPS}
        return commit_time

    async def run(self) -> Report:
        keepers = [asyncio.ensure_future(self._keep(member)) for member in self._stage.members]
        watching = asyncio.ensure_future(self._watch())
        tasks = [*keepers, watching]
        if self._stage.store_host is not None:
            tasks.append(asyncio.ensure_future(self._stage.store_host.keep()))
        actors: list[asyncio.Task[None]] = []
        try:
            await self._racing(self._open(), tasks)
            actors = self._begin(self._actors())
            await self._racing(self._nemesis.inject_faults(), tasks + actors)
            self._nemesis.end_faults()
            await self._racing(self._heal(), tasks + actors)
            self._stage.is_at_rest = True
            await asyncio.wait(actors, timeout=_LAST_STEP_SECONDS)
            await self._racing(self._transactions.audit(), tasks)
            await self._racing(self._keyed.audit(), tasks)
            await self._racing(self._delayed.audit(), tasks)
            await self._racing(self._schedules.audit(), tasks)
            await self._racing(self._shares.audit(), tasks)
            await self._racing(self._views.audit(), tasks)
            await self._racing(self._clients.audit(), tasks)
            await self._racing(self._auditor.audit_peace(self._inspector, self._committers), tasks)
        finally:
            await self._end(actors + tasks)
        self._check_problems(self._stage.members)
        return self._report()

    async def _open(self) -> None:
        """Wait until all brokers serve, and create the first topics."""
        await self._until(self._all_serve, "the brokers do not start")
        await self._admin.create_first_topics()
        await self._transactions.open()
        await self._keyed.open()
        await self._delayed.open()
        await self._schedules.open()
        await self._shares.open()
        await self._views.open()

    async def _heal(self) -> None:
        """Wait until all brokers serve, all damage is repaired and all replicas are in sync."""
        await self._until(self._all_serve, "not all brokers serve")
        if self._nemesis.data.damaged_places():
            await self._until_repaired()
        await self._until(self._inspector.is_whole, "copies are missing", self._inspector.unhealthy)

    async def _until_repaired(self) -> None:
        """Wait until the scrub has found all damage and replicas are repaired, while clients rest."""
        data = self._nemesis.data
        self._stage.is_quiet = True
        self._set_slowness(_QUICK)
        await self._until(
            lambda: not data.damaged_places(), "damage is not repaired", data.unrepaired, _REPAIR_SECONDS
        )
        self._set_slowness(1.0)
        self._stage.is_quiet = False

    def _set_slowness(self, slowness: float) -> None:
        for member in self._stage.members:
            if member.host.threads is not None:
                member.host.threads.slowness = slowness

    def _all_serve(self) -> bool:
        return all(member.is_serving for member in self._stage.members)

    async def _until(
        self, condition: Any, complaint: str, details: Any = lambda: "", seconds: float = _PEACE_SECONDS
    ) -> None:
        deadline = self._world.loop.time() + seconds
        while not condition():
            if self._world.loop.time() > deadline:
                raise InvariantViolated("I13", f"{complaint}: {details()}")
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._inspector.look()
            if self._commit_time is not None:
                self._commit_time.look()
            self._transactions.look()
            self._delayed.look()
            self._schedules.look()
            self._shares.look()
            self._check_problems(self._stage.members)

    # --- brokers

    async def _keep(self, member: BrokerHost) -> None:
        """Start the broker whenever it is down, and stop it in order when it has lost its session."""
        random = self._world.random(f"{member.host.name}/keeper")
        while True:
            await asyncio.sleep(random.uniform(0.01, 0.05))
            try:
                if member.is_running and member.is_lost:
                    await member.stop()
                if not member.is_running and self._world.loop.time() >= member.down_until:
                    await self._start(member, may_die=random.random() < 0.1)
            except SimulatedCrash:
                member.crash()
            except (OSError, PenstockError) as error:
                self._world.trace.record("log", member.host.name, f"could not start or stop: {error!r}")
                member.crash()
                await asyncio.sleep(random.uniform(0.1, 1.0))

    async def _start(self, member: BrokerHost, *, may_die: bool) -> None:
        member.note_end()
        faults = member.host.disk.faults
        faults.heal()
        may_die = may_die and self._nemesis.is_injecting and self._stage.history.may_shrink
        if may_die and self._nemesis.survival.may_crash(member):
            faults.crash_after(member.node_id * 20)
        await self._start_broker(member)

    # --- clients

    def _actors(self) -> list[Actor]:
        actors: list[Actor] = [
            self._admin,
            *self._committers,
            *self._transactions.actors,
            *self._keyed.actors,
            *self._delayed.actors,
            *self._schedules.actors,
            *self._shares.actors,
            *self._views.actors,
            *self._clients.actors,
        ]
        self._stage.is_strict = not self.traits & {
            "pause",
            "keep_from_store",
            "isolate",
            STALE_STORE,
            SOCKET_STORE,
        }
        actors += [Producer(self._stage, number) for number in range(self._random.randint(1, 3))]
        actors += [LeaderFollower(self._stage, number) for number in range(self._random.randint(1, 2))]
        return actors

    def _pause_seconds(self, actor: Actor, random: Random) -> float:
        return 0.05 if actor is not self._admin else 0.5

    def _is_over(self, actor: Actor) -> bool:
        return self._stage.is_at_rest
