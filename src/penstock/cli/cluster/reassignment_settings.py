"""Settings that `penstock cluster` changes with a reassignment: the replication throttle and min.insync.replicas."""

from __future__ import annotations

from penstock.cli.cluster.replicas import read_replicas
from penstock.config import ConfigSource
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.client import InternalClient

THROTTLED_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
ALL_REPLICAS = "*"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
REPLICAS_FOR_SAFETY, MIN_INSYNC = 3, "2"


async def set_throttle(client: InternalClient, bytes_per_second: int | None) -> None:
    """Set the replication throttle of each broker, in bytes per second; None removes it."""
    values = dict.fromkeys(THROTTLED_RATES, str(bytes_per_second)) | dict.fromkeys(
        THROTTLED_REPLICAS, ALL_REPLICAS
    )
    changes = {name: None if bytes_per_second is None else value for name, value in values.items()}
    await client.configs.alter(ConfigResourceType.BROKER, "", changes, may_repeat=True)


async def require_two_in_sync(client: InternalClient) -> list[str]:
    """Set min.insync.replicas=2 on topics with three or more replicas that do not set it.

    Returns the names of the changed topics.
    """
    assignment = (await read_replicas(client)).assignment
    topics = sorted(
        {name.topic for name, assigned in assignment.items() if len(assigned) >= REPLICAS_FOR_SAFETY}
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
