"""Kinds of clients that only some seeds of a cluster have: each is a trait, drawn from a stream of its own.

A share of 0 turns a trait off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from simulation.clients.actor import Actor
from simulation.clients.pipelined_producer import PipelinedProducer
from simulation.clients.rack_reader import RACK_AWARE, RACKS, RackReader
from simulation.clients.recreator import Recreator
from simulation.clients.retries import retried
from simulation.clients.rule_admin import RuleAdmin
from simulation.clients.shrinker import Shrinker
from simulation.clients.user_admin import UserAdmin
from simulation.groups.cluster_groups import SESSION_MS, ClusterGroups
from simulation.machine.host import SimulatedWorld
from simulation.scenarios.stage import Stage

PIPELINED = "pipelined"
"""Producers with batches of several partitions in flight."""
INTERNAL_MIN_IN_SYNC = "internal min in sync"
"""`min.insync.replicas=2` for the internal topics."""
MEMBERS = "members"
"""Consumer groups with members."""
RECREATED = "recreated"
"""A topic that is deleted and created again under its name."""
RACK_READERS = "rack readers"
"""Consumers that fetch from followers."""
USERS = "user credentials"
"""Changes of users and their credentials."""
SHRINKING = "shrinking"
"""A topic whose partition count is reduced and restored."""
RULES = "access rules"
"""Changes of access control lists."""
_ATTEMPTS = 20
_SETTLE_SECONDS = 1.0
"""Seconds until all brokers know the last change."""
SHARES: Mapping[str, float] = {
    PIPELINED: 0.3,
    INTERNAL_MIN_IN_SYNC: 0.3,
    MEMBERS: 0.2,
    RECREATED: 0.2,
    RACK_READERS: 0.2,
    USERS: 0.1,
    SHRINKING: 0.2,
    RULES: 0.1,
}
"""The share of seeds that have each trait."""


def draw_clients(world: SimulatedWorld) -> frozenset[str]:
    return frozenset(
        trait for trait, share in SHARES.items() if world.random(f"trait/{trait}").random() < share
    )


def client_settings(traits: frozenset[str]) -> dict[str, str]:
    """Return the broker settings that the traits need."""
    settings: dict[str, str] = {}
    if INTERNAL_MIN_IN_SYNC in traits:
        settings["min.insync.replicas"] = "2"
    if MEMBERS in traits:
        settings["group.min.session.timeout.ms"] = "100"
        settings["group.consumer.session.timeout.ms"] = str(SESSION_MS)
        settings["group.consumer.heartbeat.interval.ms"] = str(SESSION_MS // 3)
        settings["group.initial.rebalance.delay.ms"] = "30"
    if RACK_READERS in traits:
        settings["replica.selector.class"] = RACK_AWARE
    if RULES in traits:
        settings["authorization.mode"] = "report"
    return settings


def rack_of(traits: frozenset[str], node_id: int) -> dict[str, str]:
    """Return the rack of one broker, if brokers have racks."""
    return {"broker.rack": RACKS[node_id % len(RACKS)]} if RACK_READERS in traits else {}


class ClientCast:
    def __init__(self, stage: Stage, traits: frozenset[str]) -> None:
        self.traits = traits
        self.actors: list[Actor] = []
        stage.internal_min_in_sync = 2 if INTERNAL_MIN_IN_SYNC in traits else 1
        random = stage.world.random("clients")
        if PIPELINED in traits:
            self.actors += [PipelinedProducer(stage, number) for number in range(random.randint(1, 2))]
        if RACK_READERS in traits:
            self.actors += [RackReader(stage, number) for number in range(2)]
        self._recreator = Recreator(stage) if RECREATED in traits else None
        if self._recreator is not None:
            self.actors.append(self._recreator)
        self._users = UserAdmin(stage) if USERS in traits else None
        if self._users is not None:
            self.actors.append(self._users)
        self._shrinker = Shrinker(stage) if SHRINKING in traits else None
        if self._shrinker is not None:
            self.actors.append(self._shrinker)
        self._rules = RuleAdmin(stage) if RULES in traits else None
        if self._rules is not None:
            self.actors.append(self._rules)
        self._groups = ClusterGroups(stage) if MEMBERS in traits else None
        if self._groups is not None:
            self.actors += self._groups.members

    async def audit(self) -> None:
        """Check the clients of this cast in peace, before the auditor of the cluster runs."""
        await asyncio.sleep(_SETTLE_SECONDS)
        if self._groups is not None:
            await self._groups.audit()
        if self._users is not None:
            await retried(self._users.audit, "users cannot be read", _ATTEMPTS)
        if self._rules is not None:
            await retried(self._rules.audit, "rules cannot be read", _ATTEMPTS)
        if self._recreator is not None:
            self._recreator.register()
        if self._shrinker is not None:
            await self._shrinker.audit()
