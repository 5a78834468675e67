"""One seed of a cluster: three to five brokers with clients and faults, then peace and an audit.

Brokers that die or lose their session are started again, as a service manager would.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from penstock.errors import PenstockError
from penstock.simulation.checks.cluster_auditor import ClusterAuditor
from penstock.simulation.checks.commit_time import CommitTime
from penstock.simulation.checks.inspector import Inspector
from penstock.simulation.clients.actor import Actor
from penstock.simulation.clients.client_cast import ClientCast, client_settings, draw_clients, rack_of
from penstock.simulation.clients.cluster_admin import ClusterAdmin
from penstock.simulation.clients.cluster_producer import ClusterProducer
from penstock.simulation.clients.cluster_reader import ClusterReader
from penstock.simulation.clients.keyed_cast import KeyedCast
from penstock.simulation.faults.cluster_nemesis import ClusterNemesis
from penstock.simulation.faults.cluster_traits import (
    CLOCK_JUMPS,
    STALE_STORE,
    draw_traits,
    shared_machines,
    trait_settings,
)
from penstock.simulation.groups.committer import Committer
from penstock.simulation.machine.loop import SimulationLoop
from penstock.simulation.machine.process import SimulatedCrash
from penstock.simulation.machine.trace import Trace
from penstock.simulation.models.history import InvariantViolated
from penstock.simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from penstock.simulation.scenarios.cluster_member import ClusterMember
from penstock.simulation.scenarios.cluster_stage import ClusterStage
from penstock.simulation.scenarios.scenario import Report, Scenario
from penstock.simulation.transactions.transaction_cast import TransactionCast

_LOOK_SECONDS = 0.02
_PEACE_SECONDS = 60.0
_REPAIR_SECONDS = 60.0
"""Seconds for a few passes of the scrub and for a repair that is tried again after 30 seconds."""
_QUICK = 0.02
"""The slowness of threads while a repair is waited for: a scrub rests in proportion to the time its reads take."""
_LAST_STEP_SECONDS = 30.0


class ClusterScenario(Scenario):
    _stage: ClusterStage

    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        super().__init__(seed, loop, trace)
        random = self._random
        self._durability = random.choice(("auto", "auto", "fsync", "os"))
        session_seconds = random.choice((1.0, 2.0, 4.0))
        self._drawn = draw_traits(self._world.random("traits"))
        clients = draw_clients(self._world)
        settings = cluster_settings(random) | {"durability": self._durability} | client_settings(clients)
        settings |= trait_settings(self._world.random("traits/settings"), self._drawn)
        ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
        nodes = range(1, random.choice((3, 3, 3, 4, 5)) + 1)
        machines = shared_machines(self._world, nodes, self._drawn)
        members = [
            ClusterMember(
                self._world,
                node_id,
                settings | rack_of(clients, node_id),
                ensemble,
                session_seconds,
                machines.get(node_id),
            )
            for node_id in nodes
        ]
        for member in members:
            member.machine_members = tuple(m for m in members if m.host.machine is member.host.machine)
        ensemble.history.machines = {member.node_id: member.host.machine.name for member in members}
        self._stage = ClusterStage(self._world, members, ensemble)
        self._stage.traits = self._drawn
        self._inspector = Inspector(self._stage)
        self._nemesis = ClusterNemesis(
            self._stage, self._durability, session_seconds, self._inspector.committed
        )
        self._stage.is_damaged = lambda *place: place in self._nemesis.data.damaged_places()
        self._commit_time = self._draw_commit_time(int(settings["replica.lag.time.max.ms"]), session_seconds)
        lag = self._world.random("traits/lag")
        for member in members if STALE_STORE in self._drawn else ():
            member.store_faults.max_lag_s = lag.choice((0.0, 0.05, 0.5, 2.0))
        self._transactions = TransactionCast(self._stage, self._nemesis.strike)
        self._keyed = KeyedCast(self._stage)
        self._clients = ClientCast(self._stage, clients)
        self._admin = ClusterAdmin(self._stage)
        self._committers = [Committer(self._stage, number) for number in range(random.randint(0, 2))]
        self._auditor = ClusterAuditor(self._stage, self._inspector, self._committers)

    @property
    def traits(self) -> frozenset[str]:
        casts = self._transactions.traits | self._keyed.traits | self._clients.traits
        return self._nemesis.faults | self._drawn | {self._durability} | casts

    def _draw_commit_time(self, lag_ms: int, session_seconds: float) -> CommitTime | None:
        if CLOCK_JUMPS not in self._drawn:
            return None
        commit_time = CommitTime(self._stage, lag_ms, session_seconds)
        commit_time.troubled = self._nemesis.troubled
        self._stage.history.may_shrink = self._nemesis.faults != {CLOCK_JUMPS}
        return commit_time

    async def run(self) -> Report:
        keepers = [asyncio.ensure_future(self._keep(member)) for member in self._stage.members]
        watching = asyncio.ensure_future(self._watch())
        tasks = [*keepers, watching]
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
            await self._racing(self._clients.audit(), tasks)
            await self._racing(self._auditor.audit(), tasks)
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
            self._check_problems(self._stage.members)

    # --- brokers

    async def _keep(self, member: ClusterMember) -> None:
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

    async def _start(self, member: ClusterMember, *, may_die: bool) -> None:
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
            *self._clients.actors,
        ]
        self._stage.is_strict = not self.traits & {"pause", "keep_from_store", "isolate", STALE_STORE}
        actors += [ClusterProducer(self._stage, number) for number in range(self._random.randint(1, 3))]
        actors += [ClusterReader(self._stage, number) for number in range(self._random.randint(1, 2))]
        return actors

    def _pause_seconds(self, actor: Actor, random: Random) -> float:
        return 0.05 if actor is not self._admin else 0.5

    def _is_over(self, actor: Actor) -> bool:
        return self._stage.is_at_rest


def cluster_settings(random: Random) -> dict[str, str]:
    """Draw short intervals, so that a few seconds show everything that a cluster does in weeks."""
    return {
        "auto.create.topics.enable": "false",
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((400, 2_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((200, 1_000))),
        "log.flush.checkpoint.bytes": str(random.choice((20_000, 1_000_000))),
        "replica.lag.time.max.ms": str(random.choice((300, 1_000, 3_000))),
        "replica.fetch.wait.max.ms": str(random.choice((50, 200))),
        "replica.socket.timeout.ms": str(random.choice((500, 2_000))),
        "replica.fetch.response.max.bytes": str(random.choice((500, 1_000_000))),
        "leader.imbalance.check.interval.seconds": str(random.choice((1, 5))),
        "log.cleaner.backoff.ms": "3600000",
        "offsets.topic.num.partitions": str(random.choice((1, 2))),
        "transaction.state.log.num.partitions": "2",
    }
