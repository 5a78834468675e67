"""Execution of a reassignment plan: all reassignments start at once, and this process only watches them.

A command that is run again finds the reassignments in progress and waits for them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from penstock.cli.cluster_progress import MovingProgress, moving_progress
from penstock.cli.cluster_situation import Situation, read_situation
from penstock.cli.failures import Failure
from penstock.cluster.balance import differences
from penstock.cluster.replica_layout import Assignment
from penstock.config import ConfigSource
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId, TopicPartition

LOOK_SECONDS = 0.5
PAUSE_PER_LOOK = 10
"""Pause between polls as a multiple of a poll's duration, which limits the load on the brokers."""
MAX_LOOKS_WITHOUT_A_MOVE = 10

THROTTLED_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
ALL_REPLICAS = "*"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
COPIES_FOR_SAFETY, MIN_INSYNC = 3, "2"


@dataclass(frozen=True, slots=True)
class Move:
    name: TopicPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    missing_bytes: int

    @property
    def added(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)


def moves_of(situation: Situation, planned: Assignment) -> list[Move]:
    """Return the reassignments of the plan, both new ones and ones that are in progress."""
    changed = differences(situation.assignment, planned)
    under_way = {name: planned[name] for name in situation.moving if name in planned}
    return [
        Move(name, situation.present[name], after, situation.missing_bytes(name, after))
        for name, after in sorted((changed | under_way).items())
    ]


async def carry_out(client: InternalClient, situation: Situation, moves: list[Move]) -> None:
    """Start the reassignments, wait for their completion, then elect the preferred leaders."""
    begun = [move for move in moves if not _is_under_way(situation, move)]
    await client.reassignments.begin({move.name: move.after for move in begun})
    with moving_progress(sum(move.missing_bytes for move in moves), len(moves)) as progress:
        await _see_through(client, moves, progress)
    # A preferred replica that cannot lead yet is elected by the controller later.
    await client.reassignments.elect_preferred(move.name for move in moves)


async def set_throttle(client: InternalClient, bytes_per_second: int | None) -> None:
    """Set the replication throttle of each broker, in bytes per second; None removes it."""
    values = dict.fromkeys(THROTTLED_RATES, str(bytes_per_second)) | dict.fromkeys(
        THROTTLED_REPLICAS, ALL_REPLICAS
    )
    changes = {name: None if bytes_per_second is None else value for name, value in values.items()}
    await client.configs.alter(ConfigResourceType.BROKER, "", changes, may_repeat=True)


async def require_two_in_sync(client: InternalClient, situation: Situation) -> list[str]:
    """Set min.insync.replicas=2 on topics with three or more replicas that have no value of their own.

    Returns the names of the changed topics.
    """
    topics = sorted(
        {name.topic for name, replicas in situation.assignment.items() if len(replicas) >= COPIES_FOR_SAFETY}
    )
    if not topics:
        return []
    settings = await client.configs.describe(ConfigResourceType.TOPIC, topics, [MIN_INSYNC_REPLICAS])
    unset = [
        topic
        for topic, entries in settings.items()
        if any(entry.source != ConfigSource.DYNAMIC_TOPIC_CONFIG for entry in entries)
    ]
    if unset:
        changes = {topic: {MIN_INSYNC_REPLICAS: MIN_INSYNC} for topic in unset}
        await client.configs.alter_many(ConfigResourceType.TOPIC, changes, may_repeat=True)
    return unset


def _is_under_way(situation: Situation, move: Move) -> bool:
    return move.name in situation.moving and set(situation.assignment[move.name]) == set(move.after)


async def _see_through(client: InternalClient, moves: list[Move], progress: MovingProgress) -> None:
    total_bytes = sum(move.missing_bytes for move in moves)
    idle_looks = 0
    while True:
        began = time.monotonic()
        situation = await read_situation(client)
        took_seconds = time.monotonic() - began
        left = [move for move in moves if not _has_arrived(situation, move)]
        missing_bytes = sum(situation.missing_bytes(move.name, move.after) for move in left)
        progress.show(max(0, total_bytes - missing_bytes), len(moves) - len(left))
        if not left:
            return
        # A single poll may reach a broker that does not know the reassignments yet.
        idle_looks = idle_looks + 1 if not any(move.name in situation.moving for move in left) else 0
        if idle_looks > MAX_LOOKS_WITHOUT_A_MOVE:
            raise Failure(f"the move of {left[0].name} was called off", "Somebody else has other plans.")
        await asyncio.sleep(max(LOOK_SECONDS, took_seconds * PAUSE_PER_LOOK))


def _has_arrived(situation: Situation, move: Move) -> bool:
    """Check that a partition has its target replicas, or that its topic was deleted."""
    replicas = situation.assignment.get(move.name)
    return replicas is None or (move.name not in situation.moving and set(replicas) == set(move.after))
