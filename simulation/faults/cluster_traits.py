"""Traits of a seed of a cluster: kinds of topics, machines, stores and lost data besides its ordinary faults.

Traits are drawn from a stream of their own, so that seeds without a trait do not change with it. Two seeds
in five have none; each other seed has about two.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from simulation.machine.host import SimulatedWorld
from simulation.machine.machine import SimulatedMachine

COMPACTION = "compaction"
"""Compacted topics, and internal topics that are compacted while the seed runs."""
RETENTION = "retention"
"""Topics with a short retention."""
SHARED_MACHINE = "shared_machine"
"""Two brokers on one machine, which lose their power together."""
STALE_STORE = "stale_store"
"""Servers of the coordination store that lag behind."""
ROLLED_BACK = "roll_back"
"""Data directories that are restored to an earlier copy."""
CLONED = "clone"
"""Data directories that are copied, and used by a second process."""
LOST_FILES = "lose_file"
"""Files of closed segments that are deleted, truncated or swapped while their broker is down."""
CHANGED_BYTES = "change_byte"
"""Single bytes of closed segments that change."""
DERIVED_FILES = "damage_derived"
"""Indexes, snapshots and checkpoints that are lost or damaged."""
CLOCK_JUMPS = "jump_clock"
"""Wall clocks that jump by hours, which may not delay a commit."""
LOST_LEADER = "lose_last"
"""The last in-sync replica of a partition under min ISR loses its data, while eligible leaders have all of it."""
SOCKET_STORE = "socket_store"
"""A store that a process of its own serves over sockets, as with several broker processes on one machine."""

EVERY_TRAIT = (
    COMPACTION,
    RETENTION,
    SHARED_MACHINE,
    STALE_STORE,
    ROLLED_BACK,
    CLONED,
    LOST_FILES,
    CHANGED_BYTES,
    DERIVED_FILES,
    CLOCK_JUMPS,
    LOST_LEADER,
    SOCKET_STORE,
)
SWITCHED_ON = frozenset(EVERY_TRAIT)
"""The traits that seeds are drawn from."""
_WITHOUT = 0.4
_LIKELIHOOD = 0.2


def draw_traits(random: Random) -> frozenset[str]:
    has_any = random.random() >= _WITHOUT
    drawn = {trait for trait in EVERY_TRAIT if random.random() < _LIKELIHOOD}
    return frozenset(drawn) & SWITCHED_ON if has_any else frozenset()


def trait_settings(random: Random, traits: frozenset[str]) -> dict[str, str]:
    """Return the broker settings that these traits need."""
    settings: dict[str, str] = {}
    if COMPACTION in traits:
        settings["log.cleaner.backoff.ms"] = str(random.choice((100, 500)))
        settings["log.roll.ms"] = str(random.choice((500, 3_000, 3_600_000)))
    if RETENTION in traits:
        settings["log.retention.check.interval.ms"] = str(random.choice((200, 1_000)))
    if CHANGED_BYTES in traits:
        settings["log.scrub.interval.ms"] = str(random.choice((500, 2_000)))
        settings["log.flush.offset.checkpoint.interval.ms"] = "500"
    if CLOCK_JUMPS in traits:
        settings["log.message.timestamp.after.max.ms"] = str((1 << 63) - 1)
        settings["replica.lag.time.max.ms"] = str(random.choice((1_000, 3_000)))
    if LOST_LEADER in traits:
        settings["min.insync.replicas"] = "2"  # internal topics have it too
    return settings


def topic_settings(random: Random, traits: frozenset[str]) -> dict[str, str]:
    """Draw the settings of a topic for these traits; its segments are small."""
    if COMPACTION in traits and random.random() < 0.6:
        ratio = random.choice(("0.01", "0.5"))
        return {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": ratio, "segment.bytes": "2000"}
    if RETENTION in traits and random.random() < 0.7:
        kept = random.choice(
            (("retention.bytes", "3000"), ("retention.bytes", "10000"), ("retention.ms", "1000"))
        )
        return {kept[0]: kept[1], "segment.bytes": "2000"}
    return {"segment.bytes": "2000"} if traits & {LOST_FILES, CHANGED_BYTES, DERIVED_FILES} else {}


def shared_machines(
    world: SimulatedWorld, nodes: Sequence[int], traits: frozenset[str]
) -> dict[int, SimulatedMachine]:
    """Return the machine that two of the brokers share, if any do."""
    if SHARED_MACHINE not in traits:
        return {}
    machine = SimulatedMachine("machine", world.loop.time)
    return dict.fromkeys(world.random("traits/machines").sample(nodes, 2), machine)
