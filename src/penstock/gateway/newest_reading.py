"""Reading the newest messages of a topic, over all of its partitions.

A log can only be read forwards, so a read begins some offsets before the end. If this span of offsets has too few
messages, because of compaction or aborted transactions, it is widened. If the end is not reached within the budget,
because messages are large, it is narrowed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from penstock.gateway.key_reading import FoundMessages
from penstock.gateway.records import GatewayRecords, Limits
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.records.iteration import Record

MAX_NEWEST = 1_000
_PAGE_BYTES = 1024 * 1024
_MAX_PAGES = 8
"""Maximum number of pages of a partition that one attempt reads: its budget."""
_MAX_ATTEMPTS = 6
_STEP = 8
"""Factor by which the span is widened or narrowed."""


async def read_newest(
    records: GatewayRecords, topic: str, partitions: Sequence[int], count: int
) -> FoundMessages:
    """Return at most `count` messages, newest first, and the end positions of the partitions."""
    starts, ends = await asyncio.gather(
        records.offsets(topic, partitions, EARLIEST), records.offsets(topic, partitions, LATEST)
    )
    tails = await asyncio.gather(
        *(_tail(records, topic, each, starts[each], ends[each], count) for each in partitions)
    )
    found = [
        (partition, record) for partition, tail in zip(partitions, tails, strict=True) for record in tail
    ]
    found.sort(key=lambda each: (each[1].timestamp, each[1].offset), reverse=True)
    positions = ",".join(f"{partition}:{ends[partition]}" for partition in partitions if ends[partition])
    return FoundMessages(found[:count], positions)


async def _tail(
    records: GatewayRecords, topic: str, partition: int, start: int, end: int, count: int
) -> Sequence[Record]:
    """Return the last records of a partition, at most `count`, oldest first."""
    span, best, too_wide = count, deque[Record](), end - start + 1
    for _ in range(_MAX_ATTEMPTS):
        first = max(start, end - span)
        if first >= end:
            return best
        found, is_complete = await _read_to(records, topic, partition, first, end, count)
        if is_complete:
            best = found
            if len(found) >= count or first == start or span * _STEP >= too_wide:
                return best
            span *= _STEP
        else:
            if span == 1 or best:
                return best or found
            too_wide, span = span, max(1, span // _STEP)
    return best


async def _read_to(
    records: GatewayRecords, topic: str, partition: int, offset: int, end: int, count: int
) -> tuple[deque[Record], bool]:
    """Return the last records of a range of offsets, and True if its end was reached within the budget."""
    found: deque[Record] = deque(maxlen=count)
    for _ in range(_MAX_PAGES):
        page = await records.read(topic, partition, offset, Limits(MAX_NEWEST, _PAGE_BYTES))
        found.extend(record for record in page.records if record.offset < end)
        if page.next_offset >= end or page.next_offset == offset:
            return found, True
        offset = page.next_offset
    return found, False
