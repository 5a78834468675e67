"""Carrying out a plan: moves are begun all at once, and go on in the cluster whether or not somebody looks on.

Running a command again finds what is under way and waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli.cluster_client import ClusterClient, alter_configs, check_answer
from penstock.cli.cluster_progress import MovingProgress, moving_progress
from penstock.cli.cluster_situation import TIMEOUT_MS, Situation, read_situation
from penstock.cli.failures import Failure
from penstock.cluster.balance import differences
from penstock.cluster.replica_layout import Assignment
from penstock.config.resources import ConfigOperation, ConfigResourceType
from penstock.errors import ErrorCode
from penstock.model import BrokerId, TopicPartition

ALTER_PARTITION_REASSIGNMENTS = 45
ELECT_LEADERS = 43
DESCRIBE_CONFIGS = 32

PARTITIONS_PER_REQUEST = 500
LOOK_SECONDS = 0.5
PAUSE_PER_LOOK = 10
"""So many times as long as a look takes there is none: of many partitions it costs brokers something."""
MAX_LOOKS_WITHOUT_A_MOVE = 10
PREFERRED = 0
SET_ON_TOPIC = 1
"""Kafka's config source of a value that was set on the topic itself."""

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
    """What is to be begun, and what is under way to the same end already."""
    changed = differences(situation.assignment, planned)
    under_way = {name: planned[name] for name in situation.moving if name in planned}
    return [
        Move(name, situation.present[name], after, situation.missing_bytes(name, after))
        for name, after in sorted((changed | under_way).items())
    ]


async def carry_out(client: ClusterClient, situation: Situation, moves: list[Move]) -> None:
    """Begin the moves, see them through, and have the preferred replicas lead."""
    begun = [move for move in moves if not _is_under_way(situation, move)]
    await _reassign(client, {move.name: move.after for move in begun})
    with moving_progress(sum(move.missing_bytes for move in moves), len(moves)) as progress:
        await _see_through(client, moves, progress)
    await _elect(client, [move.name for move in moves])


async def set_throttle(client: ClusterClient, bytes_per_second: int | None) -> None:
    """How fast replicas that are not in sync may copy, for each broker; None is no limit."""
    values = dict.fromkeys(THROTTLED_RATES, str(bytes_per_second)) | dict.fromkeys(
        THROTTLED_REPLICAS, ALL_REPLICAS
    )
    operation = ConfigOperation.DELETE if bytes_per_second is None else ConfigOperation.SET
    configs = [
        {"name": name, "config_operation": operation, "value": None if bytes_per_second is None else value}
        for name, value in values.items()
    ]
    await alter_configs(client, ConfigResourceType.BROKER, {"": configs})


async def require_two_in_sync(client: ClusterClient, situation: Situation) -> list[str]:
    """Have topics with three replicas ask for two in sync, as new ones do; those that say nothing of it themselves."""
    topics = sorted(
        {name.topic for name, replicas in situation.assignment.items() if len(replicas) >= COPIES_FOR_SAFETY}
    )
    if not topics:
        return []
    resources = [
        {
            "resource_type": ConfigResourceType.TOPIC,
            "resource_name": topic,
            "configuration_keys": [MIN_INSYNC_REPLICAS],
        }
        for topic in topics
    ]
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    answer = await client.ask(DESCRIBE_CONFIGS, 4, fields)
    unset = [
        result.resource_name
        for result in answer.results
        if any(entry.config_source != SET_ON_TOPIC for entry in result.configs)
    ]
    config = {"name": MIN_INSYNC_REPLICAS, "config_operation": ConfigOperation.SET, "value": MIN_INSYNC}
    await alter_configs(client, ConfigResourceType.TOPIC, {topic: [config] for topic in unset})
    return unset


def _is_under_way(situation: Situation, move: Move) -> bool:
    return move.name in situation.moving and set(situation.assignment[move.name]) == set(move.after)


async def _reassign(client: ClusterClient, targets: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> None:
    names = list(targets)
    for start in range(0, len(names), PARTITIONS_PER_REQUEST):
        topics = _by_topic(
            (name.topic, {"partition_index": name.partition, "replicas": targets[name]})
            for name in names[start : start + PARTITIONS_PER_REQUEST]
        )
        answer = await client.ask(
            ALTER_PARTITION_REASSIGNMENTS,
            1,
            {
                "timeout": TIMEOUT_MS,
                "allow_replication_factor_change": True,
                "topics": [{"name": topic, "partitions": each} for topic, each in topics.items()],
            },
        )
        check_answer(answer, "the moves")
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.unknown_topic_or_partition:  # deleted since
                    check_answer(partition, f"{topic.name}-{partition.partition_index}")


async def _see_through(client: ClusterClient, moves: list[Move], progress: MovingProgress) -> None:
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
        # One look may be at a broker that has not heard of the moves yet.
        idle_looks = idle_looks + 1 if not any(move.name in situation.moving for move in left) else 0
        if idle_looks > MAX_LOOKS_WITHOUT_A_MOVE:
            raise Failure(f"the move of {left[0].name} was called off", "Somebody else has other plans.")
        await asyncio.sleep(max(LOOK_SECONDS, took_seconds * PAUSE_PER_LOOK))


def _has_arrived(situation: Situation, move: Move) -> bool:
    """It has its replicas, or its topic is no more."""
    replicas = situation.assignment.get(move.name)
    return replicas is None or (move.name not in situation.moving and set(replicas) == set(move.after))


async def _elect(client: ClusterClient, names: Iterable[TopicPartition]) -> None:
    """Where the preferred replica cannot lead now, the controller sees to it later."""
    chosen = list(names)
    for start in range(0, len(chosen), PARTITIONS_PER_REQUEST):
        some = chosen[start : start + PARTITIONS_PER_REQUEST]
        topics = _by_topic((name.topic, name.partition) for name in some)
        partitions = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
        fields = {"election_type": PREFERRED, "topic_partitions": partitions, "timeout": TIMEOUT_MS}
        check_answer(await client.ask(ELECT_LEADERS, 2, fields), "the election of leaders")


def _by_topic(items: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for topic, item in items:
        topics.setdefault(topic, []).append(item)
    return topics
