"""Free disk space of brokers, to explain failed sends, for which a Kafka client reports only a timeout."""

from __future__ import annotations

import asyncio

from penstock.cli.admin_client import run_admin
from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.output import show_bytes
from penstock.config import LOG_DIR_MIN_FREE_BYTES
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId

HINT = (
    "Free space with `penstock topic truncate`, `penstock topic delete` or a shorter retention.ms; the broker then "
    "accepts writes again."
)
_TIMEOUT_SECONDS = 5.0


def full_disk(cluster: ClusterClient) -> str:
    """Return a sentence about a broker with a full disk; empty if there is none or no broker responds."""
    try:
        return run_admin(cluster.bootstrap, _find_full_disk, response_seconds=_TIMEOUT_SECONDS)
    except (Failure, OSError):
        return ""


async def _find_full_disk(client: InternalClient) -> str:
    for broker in await client.brokers.all():
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            free_bytes = await _free_bytes(client, BrokerId(broker.node_id))
            min_free_bytes = await _min_free_bytes(client, broker.node_id)
        if free_bytes is not None and free_bytes < min_free_bytes:
            return (
                f"the disk of broker {broker.node_id} is full: {show_bytes(free_bytes)} free, and "
                f"{LOG_DIR_MIN_FREE_BYTES.name} is {show_bytes(min_free_bytes)}"
            )
    return ""


async def _free_bytes(client: InternalClient, node_id: BrokerId) -> int | None:
    """Return the free bytes of the log directory with the least free space; None if the broker does not report them."""
    log_dirs = await client.brokers.log_dirs(node_id, with_sizes=False)
    return min((each.usable_bytes for each in log_dirs if each.usable_bytes >= 0), default=None)


async def _min_free_bytes(client: InternalClient, node_id: int) -> int:
    """Return log.dir.min.free.bytes of a broker; 1 for a broker without this setting."""
    entries = await client.configs.get(ConfigResourceType.BROKER, str(node_id))
    values = [entry.value for entry in entries if entry.name == LOG_DIR_MIN_FREE_BYTES.name]
    return max(1, int(values[0] or 0)) if values else 1
