"""Offsets of share groups for administrators: start offset, and lag behind the end of each partition.

The lag is the number of records that are not settled (KIP-1226): end offset - start offset - settled records behind
the start. The end offset of a partition on another broker is asked from its leader.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.api import ClientApi
from penstock.model import ShareKey
from penstock.net.broker_connection import BrokerConnection
from penstock.server.dispatch import Request

_LIST_OFFSETS = ClientApi(2, 7)
_LATEST = -1
UNKNOWN = -1


class ShareOffset(NamedTuple):
    start_offset: int
    leader_epoch: int
    lag: int


async def share_offset(request: Request, key: ShareKey, topic: str) -> ShareOffset:
    """Offset of one partition; -1 for a start offset that is not decided yet, and for a lag that is not known."""
    context = request.context
    summary = await context.share.states.summary(key)
    if summary.start_offset < 0:
        return ShareOffset(UNKNOWN, summary.leader_epoch, UNKNOWN)
    try:
        end_offset = await _end_offset(request, topic, key.partition)
    except (BrokerError, OSError, TimeoutError, PenstockError):
        return ShareOffset(summary.start_offset, summary.leader_epoch, UNKNOWN)
    lag = max(0, end_offset - summary.start_offset - summary.delivery_complete_count)
    return ShareOffset(summary.start_offset, summary.leader_epoch, lag)


async def _end_offset(request: Request, topic: str, partition: int) -> int:
    context = request.context
    topic = context.source_of(topic)
    known = context.image.topic(topic)
    if known is None or not 0 <= partition < len(known.partitions):
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    leader = known.partitions[partition].leader
    if leader == context.node_id:
        return context.replicas.get(topic, partition).log.high_watermark
    asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": _LATEST}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [asked]}],
    }

    async def ask(connection: BrokerConnection) -> int:
        response = await _LIST_OFFSETS.call(connection, fields)
        offset: int = response.topics[0].partitions[0].offset
        return offset

    return await context.share.states.links.send(leader, ask)
