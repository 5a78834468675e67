"""The brokers of a seed, drawn and not started yet: one with an embedded store, or three to five with a shared store.

Settings have small limits and short intervals, so that a few seconds show everything that a broker does in
weeks.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.clients.client_cast import client_settings, draw_clients, rack_of
from simulation.faults.cluster_traits import (
    SOCKET_STORE,
    STALE_STORE,
    draw_traits,
    shared_machines,
    trait_settings,
)
from simulation.machine.host import SimulatedWorld
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage
from simulation.scenarios.store_host import StoreHost
from simulation.shares.share_settings import share_settings

_EMBEDDED_SESSION_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Setup:
    stage: Stage
    session_seconds: float
    client_traits: frozenset[str] = frozenset()
    """The kinds of clients that only some seeds have, see `client_cast`."""

    def setting(self, name: str) -> str:
        """Return a setting that all brokers have."""
        return self.stage.broker.settings[name]


def set_up_broker(world: SimulatedWorld, random: Random) -> Setup:
    """Draw a broker alone."""
    ensemble = RecordedEnsemble(PartitionHistory(world.trace, world.loop.time))
    broker = BrokerHost(
        world,
        1,
        _settings_alone(random),
        ensemble,
        _EMBEDDED_SESSION_SECONDS,
        name="broker",
        is_store_embedded=True,
    )
    return Setup(Stage(world, [broker], ensemble), _EMBEDDED_SESSION_SECONDS)


def set_up_cluster(world: SimulatedWorld, random: Random) -> Setup:
    """Draw the brokers of a cluster, their machines, and the traits of the seed."""
    durability = random.choice(("auto", "auto", "fsync", "os"))
    session_seconds = random.choice((1.0, 2.0, 4.0))
    traits, clients = draw_traits(world.random("traits")), draw_clients(world)
    settings = _cluster_settings(random) | {"durability": durability} | client_settings(clients)
    settings |= trait_settings(world.random("traits/settings"), traits)
    settings |= share_settings(world.random("shares/settings"))
    ensemble = RecordedEnsemble(PartitionHistory(world.trace, world.loop.time))
    nodes = range(1, random.choice((3, 3, 3, 4, 5)) + 1)
    machines = shared_machines(world, nodes, traits)
    store_host = StoreHost(world, ensemble) if SOCKET_STORE in traits else None
    members = [
        BrokerHost(
            world,
            node,
            settings | rack_of(clients, node),
            ensemble,
            session_seconds,
            machines.get(node),
            store_host=store_host,
        )
        for node in nodes
    ]
    for member in members:
        member.machine_members = tuple(m for m in members if m.host.machine is member.host.machine)
    ensemble.history.machines = {member.node_id: member.host.machine.name for member in members}
    if STALE_STORE in traits:
        lag = world.random("traits/lag")
        for member in members:
            member.store_faults.max_lag_s = lag.choice((0.0, 0.05, 0.5, 2.0))
    stage = Stage(world, members, ensemble)
    stage.traits = traits
    stage.store_host = store_host
    return Setup(stage, session_seconds, clients)


def _settings_alone(random: Random) -> dict[str, str]:
    """Draw the settings of a broker alone."""
    return {
        "auto.create.topics.enable": "false",
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((100, 400, 2_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((100, 1_000))),
        "log.retention.check.interval.ms": str(random.choice((200, 1_000))),
        "log.cleaner.backoff.ms": str(random.choice((100, 500))),
        "log.flush.checkpoint.bytes": str(random.choice((2_000, 20_000, 1_000_000))),
        "log.open.files.max": str(random.choice((16, 7_000))),
        "log.dir.min.free.bytes": str(random.choice((0, 3_000))),
        "durability": random.choice(("auto", "auto", "fsync", "os")),
        "group.initial.rebalance.delay.ms": str(random.choice((0, 30, 200))),
        "group.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": str(random.choice((1_500, 15_000))),
        "offsets.topic.num.partitions": str(random.choice((1, 2, 5))),
    }


def _cluster_settings(random: Random) -> dict[str, str]:
    """Draw the settings that all brokers of a cluster have."""
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
