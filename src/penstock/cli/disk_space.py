"""The free disk space of brokers, as the reason why records are not taken: a Kafka client only reports a timeout."""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import ConfigResource

from penstock.cli.cluster import REQUEST_SECONDS, Cluster, answers
from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.output import show_bytes
from penstock.config import LOG_DIR_MIN_FREE_BYTES, Address

HINT = (
    "Make space with `penstock topic truncate`, `penstock topic delete` or a shorter retention.ms; writes go on by "
    "themselves then."
)
_DESCRIBE_LOG_DIRS, _VERSION = 35, 4
_PATIENCE_SECONDS = 5.0


def full_disk(cluster: Cluster) -> str:
    """A sentence that names a broker whose disk is full; empty where none is, or none can be asked."""
    try:
        for broker in cluster.metadata().brokers.values():
            free_bytes = asyncio.run(_free_bytes(Address(broker.host, broker.port)))
            floor_bytes = _floor_bytes(cluster, broker.id)
            if free_bytes is not None and free_bytes < floor_bytes:
                return (
                    f"the disk of broker {broker.id} is full: {show_bytes(free_bytes)} free, and "
                    f"{LOG_DIR_MIN_FREE_BYTES.name} is {show_bytes(floor_bytes)}"
                )
    except (Failure, OSError):
        return ""
    return ""


async def _free_bytes(address: Address) -> int | None:
    """The free space of the fullest log directory; None where the broker does not say."""
    async with ClusterClient(str(address), _PATIENCE_SECONDS) as client:
        response = await client.ask(_DESCRIBE_LOG_DIRS, _VERSION, {"topics": []})
    known = [each.usable_bytes for each in response.results if each.usable_bytes >= 0]
    return min(known, default=None)


def _floor_bytes(cluster: Cluster, broker_id: int) -> int:
    """The setting of a broker; 1 byte for a broker that has no such setting."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
    [entries] = answers(cluster.admin.describe_configs([resource], request_timeout=REQUEST_SECONDS))
    entry = entries.get(LOG_DIR_MIN_FREE_BYTES.name)
    return max(1, int(entry.value)) if entry is not None else 1
