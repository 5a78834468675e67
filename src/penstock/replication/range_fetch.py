"""Fetch of a range of committed records from another replica, leader or follower, to repair damage.

The connection is authenticated like a follower's, but the Fetch request is that of a consumer, so that it does not
affect the in-sync set. The other broker reads its own replica, up to the high watermark that it knows.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.cluster.image import RegisteredBroker
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import check_error
from penstock.internal_client.records import fetch
from penstock.model import Offset, TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.records.batch import crc_matches
from penstock.records.iteration import read_batches
from penstock.replication.authentication import prove
from penstock.replication.context import ReplicationContext
from penstock.storage.damage import DamagedRange

MAX_RANGE_BYTES = 64 * 1024 * 1024
"""Maximum size in bytes of a range that can be repaired."""
_FETCH_BYTES = 1 << 20


async def fetch_range(
    context: ReplicationContext,
    secret: str | None,
    source: RegisteredBroker,
    partition: tuple[TopicId, int],
    damaged: DamagedRange,
    timeout_seconds: float,
) -> memoryview:
    """Fetch the batches of a range without checking them; BrokerError, OSError or TimeoutError if that fails."""
    async with asyncio.timeout(timeout_seconds):
        client = await BrokerConnection.connect(
            context.network, source.host, source.port, f"penstock-broker-{context.node_id}"
        )
        try:
            await prove(client, secret, context.node_id, source.node_id, context.random)
            return await _collect(client, partition, damaged)
        finally:
            client.close()


async def verify_range(
    context: ReplicationContext,
    secret: str | None,
    source: RegisteredBroker,
    partition: tuple[TopicId, int],
    wanted: DamagedRange,
    timeout_seconds: float,
) -> None:
    """Fetch a range of any length and verify its batches, without keeping them; BrokerError if a batch is damaged.

    `timeout_seconds` applies to each response.
    """
    async with asyncio.timeout(timeout_seconds):
        client = await BrokerConnection.connect(
            context.network, source.host, source.port, f"penstock-broker-{context.node_id}"
        )
    try:
        async with asyncio.timeout(timeout_seconds):
            await prove(client, secret, context.node_id, source.node_id, context.random)
        offset = wanted.base_offset
        while offset < wanted.end_offset:
            async with asyncio.timeout(timeout_seconds):
                records = await _fetch(client, partition, offset)
            reached = await context.threads.run("background", partial(_whole_until, records, offset))
            if reached <= offset:
                raise BrokerError(ErrorCode.offset_not_available, f"offset {offset} cannot be fetched")
            offset = reached
    finally:
        client.close()


def _whole_until(records: memoryview, offset: Offset) -> Offset:
    """Offset after the last complete batch; CORRUPT_MESSAGE if the CRC of a batch does not match."""
    for header, batch in read_batches(records):
        if not crc_matches(batch, header):
            raise BrokerError(
                ErrorCode.corrupt_message, f"the batch at offset {header.base_offset} is damaged"
            )
        offset = header.next_offset
    return offset


async def _collect(
    client: BrokerConnection, partition: tuple[TopicId, int], damaged: DamagedRange
) -> memoryview:
    content, offset = bytearray(), damaged.base_offset
    while offset < damaged.end_offset:
        reached = offset
        for header, batch in read_batches(await _fetch(client, partition, offset)):
            if header.base_offset >= damaged.end_offset:
                return memoryview(bytes(content))
            content += batch
            reached = header.next_offset
        if reached <= offset or len(content) > MAX_RANGE_BYTES:
            raise BrokerError(ErrorCode.offset_not_available, f"offset {offset} cannot be fetched")
        offset = reached
    return memoryview(bytes(content))


async def _fetch(client: BrokerConnection, partition: tuple[TopicId, int], offset: Offset) -> memoryview:
    topic_id, index = partition
    [result] = await fetch(client, topic_id, {index: offset}, _FETCH_BYTES, read_committed=False)
    check_error(result.error_code)
    assert isinstance(result.records, (bytes, memoryview))
    return memoryview(result.records)
