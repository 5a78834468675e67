"""Reading the messages of one key in all partitions of a topic.

Producers may assign keys to partitions in different ways, and partitions may be added, so only a read of every
partition finds all messages. The position of a reader is a text that the client sends back in its next request:
`partition:offset` for each partition with messages, separated by commas.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.gateway.http.problems import Problem
from penstock.gateway.records import GatewayRecords, KeyPage, Limits, RecordPage
from penstock.records.iteration import Record

_POSITION = re.compile(r"(\d{1,5}):(\d{1,18})", re.ASCII)

Positions = Mapping[int, int]


class FoundMessages(NamedTuple):
    """A page of messages from several partitions."""

    found: Sequence[tuple[int, Record]]
    """Messages with their partitions, sorted by timestamp."""
    positions: str
    """Positions from which the next read continues, as text for `parse_positions`."""


def parse_positions(text: str) -> Positions:
    places = [_POSITION.fullmatch(item) for item in text.split(",") if item]
    if None in places:
        raise Problem(400, "positions is not a value from an earlier response", error="INVALID_REQUEST")
    return {int(place[1]): int(place[2]) for place in places if place}


async def read_key(
    records: GatewayRecords, topic: str, starts: Positions, key: bytes, limits: Limits, wait_ms: int
) -> FoundMessages:
    """Read the messages of a key in the partitions of `starts`, each from its offset on. If there are none, wait
    up to `wait_ms` for the first one.
    """

    async def look(partition: int, wait_ms: int) -> tuple[int, KeyPage]:
        return partition, await records.read_key(topic, partition, key, starts[partition], limits, wait_ms)

    pages = await asyncio.gather(*(look(partition, 0) for partition in starts))
    if wait_ms and not any(page.records for _, page in pages):
        waiting = [asyncio.ensure_future(look(partition, wait_ms)) for partition in starts]
        try:
            pages = [await _first_with_records(waiting)]
        finally:
            for each in waiting:
                each.cancel()
    return merge(pages, starts, limits)


async def _first_with_records(waiting: Sequence[asyncio.Future[tuple[int, KeyPage]]]) -> tuple[int, KeyPage]:
    for done in asyncio.as_completed(waiting):
        partition, page = await done
        if page.records:
            break
    return partition, page


def merge(
    pages: Sequence[tuple[int, KeyPage | RecordPage]], starts: Positions, limits: Limits
) -> FoundMessages:
    """Merge the pages of partitions into one page within the limits: oldest timestamp first, but in the order of
    offsets within a partition.
    """
    queues = {partition: list(reversed(page.records)) for partition, page in pages if page.records}
    ends = {partition: page.next_offset for partition, page in pages}
    found: list[tuple[int, Record]] = []
    left_bytes = limits.max_bytes
    while queues and len(found) < limits.max_records and left_bytes > 0:
        partition = min(queues, key=lambda each: (queues[each][-1].timestamp, each))
        record = queues[partition].pop()
        left_bytes -= len(record.value or b"")
        found.append((partition, record))
        if not queues[partition]:
            del queues[partition]
    reached = {partition: start for partition, start in starts.items() if start}
    for partition, _ in found:
        left = queues.get(partition)
        reached[partition] = left[-1].offset if left else ends[partition]
    return FoundMessages(
        found, ",".join(f"{partition}:{offset}" for partition, offset in sorted(reached.items()))
    )
