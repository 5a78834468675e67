"""Offsets of share groups for administrators: start offset and lag of each partition.

The lag is the number of records that are not settled (KIP-1226): high watermark - start offset - settled records above
the start offset. If another broker leads the partition, it is asked for the high watermark with ListOffsets.
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
    """Start offset and lag of one partition. The start offset is -1 if it is not initialized yet, and the lag is -1 if
    it is unknown.
    """
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
