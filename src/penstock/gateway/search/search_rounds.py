"""Search of a topic: all partitions are searched in rounds, with a limit on bytes and time.

A round searches one window of every partition and sorts its matches by time. So newer messages come first in general,
though the windows of partitions may cover different times. The search ends when all records are searched, or at the
limit of matches, bytes or seconds; `end_reason` tells which. Used by the gateway and by the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.filters.matching import Filter
from penstock.gateway.search.matcher import Matcher
from penstock.gateway.search.partition_search import PartitionSearch, SearchedRecords
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.records.iteration import Record

PARTITIONS_AT_ONCE = 4
DEFAULT_LIMIT = 100
DEFAULT_MAX_BYTES = 1024 * 1024 * 1024
DEFAULT_MAX_SECONDS = 60


class SearchRounds:
    def __init__(
        self,
        records: SearchedRecords,
        clock: Clock,
        matcher: Matcher,
        partitions: Sequence[PartitionSearch],
        query: Mapping[str, Any],
    ) -> None:
        self._records = records
        self._clock = clock
        self._matcher = matcher
        self._partitions = partitions
        self._limit: int = query.get("limit", DEFAULT_LIMIT)
        self._max_bytes: int = query.get("max_bytes", DEFAULT_MAX_BYTES)
        self._started = clock.monotonic()
        self._deadline = self._started + query.get("max_seconds", DEFAULT_MAX_SECONDS)
        self._total = sum(each.end - each.start for each in partitions)
        self._found = 0

    async def next(self) -> list[tuple[int, Record]]:
        """Search one window of every partition, and return the matches with their partitions, newest first."""
        open_ones = [each for each in self._partitions if not each.is_done]
        found: list[tuple[int, Record]] = []
        for first in range(0, len(open_ones), PARTITIONS_AT_ONCE):
            some = open_ones[first : first + PARTITIONS_AT_ONCE]
            steps = (each.step(self._records, self._matcher, self._limit) for each in some)
            for each, matches in zip(some, await asyncio.gather(*steps), strict=True):
                found += ((each.partition, record) for record in matches)
            if self._is_over_budget:
                break
        found.sort(key=lambda each: (each[1].timestamp, each[1].offset), reverse=True)
        kept = found[: self._limit - self._found]
        self._found += len(kept)
        return kept

    @property
    def end_reason(self) -> str:
        """Reason why the search has ended: `limit`, `complete`, `bytes` or `seconds`; empty while it continues."""
        if self._found >= self._limit:
            return "limit"
        if all(each.is_done for each in self._partitions):
            return "complete"
        if sum(each.scanned_bytes for each in self._partitions) >= self._max_bytes:
            return "bytes"
        return "seconds" if self._clock.monotonic() >= self._deadline else ""

    def progress(self) -> dict[str, Any]:
        left = sum(each.end - each.start for each in self._partitions)
        return {
            "matches": self._found,
            "scanned_bytes": sum(each.scanned_bytes for each in self._partitions),
            "scanned_records": sum(each.scanned_records for each in self._partitions),
            "damaged": sum(each.damaged for each in self._partitions),
            "failed": sum(each.failed for each in self._partitions),
            "fraction": round(1 - left / self._total, 4) if self._total else 1,
            "seconds": round(self._clock.monotonic() - self._started, 3),
            "reason": self.end_reason,
        }

    @property
    def _is_over_budget(self) -> bool:
        read = sum(each.scanned_bytes for each in self._partitions)
        return read >= self._max_bytes or self._clock.monotonic() >= self._deadline


async def open_partitions(
    records: SearchedRecords, topic: str, numbers: Sequence[int], query: Mapping[str, Any]
) -> list[PartitionSearch]:
    """Create the searches of partitions: each from the first record in the time range to the end of the partition.

    Raises ConfigError if the filter of the query is invalid.
    """
    text = query.get("filter")
    filters = {each: None if text is None else Filter(text, each) for each in numbers}
    starts, ends = await asyncio.gather(
        records.offsets(topic, numbers, query.get("from_ms", EARLIEST)),
        records.offsets(topic, numbers, LATEST),
    )
    return [PartitionSearch(topic, each, starts[each], ends[each], filters[each]) for each in numbers]
