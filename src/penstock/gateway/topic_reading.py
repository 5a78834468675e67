"""Reading all partitions of a topic together: pages sorted by timestamp, with positions for the next read.

Within a partition messages come in the order of their offsets. The positions of a page contain each partition
that was read beyond its first offset. A partition that they do not contain, such as one that was added later, is
read from its start.
"""

from __future__ import annotations

import asyncio

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.http.problems import Problem
from penstock.gateway.key_reading import FoundMessages, Positions, merge
from penstock.gateway.records import GatewayRecords, Limits, RecordPage
from penstock.internal_client.records import EARLIEST

MAX_PARTITIONS = 256
"""Maximum number of partitions that can be read together: their positions must fit into a URL."""
_MIN_PARTITION_BYTES = 32 * 1024


def check_partition_count(count: int) -> None:
    """Raise a Problem if a topic has too many partitions to be read together: the client must name a partition."""
    if count > MAX_PARTITIONS:
        raise Problem(
            400,
            f"the topic has more than {MAX_PARTITIONS} partitions: read them one by one with partition",
            error="INVALID_REQUEST",
        )


async def read_all(
    records: GatewayRecords, clock: Clock, topic: str, starts: Positions, limits: Limits, wait_ms: int
) -> FoundMessages:
    """Read the partitions in `starts`, each from its offset on. If there are no messages, wait up to `wait_ms`
    for the first one.

    A start below the log start offset is replaced by the log start offset. Raises OFFSET_OUT_OF_RANGE if a start
    is beyond the end of its partition.
    """
    deadline = clock.monotonic() + wait_ms / 1000
    positions = dict(starts)
    of_partition = Limits(
        limits.max_records, max(_MIN_PARTITION_BYTES, limits.max_bytes // max(1, len(starts)))
    )
    while True:
        pages = await asyncio.gather(
            *(
                _read(records, topic, partition, offset, of_partition)
                for partition, offset in positions.items()
            )
        )
        found = merge(tuple(zip(positions, pages, strict=True)), positions, limits)
        left_ms = round((deadline - clock.monotonic()) * 1000)
        if found.found or left_ms <= 0:
            return found
        # A page without messages may still advance the position, past records of aborted transactions.
        positions = {partition: page.next_offset for partition, page in zip(positions, pages, strict=True)}
        await records.wait_for_any(topic, positions, left_ms)


async def _read(
    records: GatewayRecords, topic: str, partition: int, offset: int, limits: Limits
) -> RecordPage:
    try:
        return await records.read(topic, partition, offset, limits)
    except BrokerError as error:
        if error.code is not ErrorCode.offset_out_of_range:
            raise
        start = (await records.offsets(topic, [partition], EARLIEST))[partition]
        if start <= offset:
            raise
        return await records.read(topic, partition, start, limits)
