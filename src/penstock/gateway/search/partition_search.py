"""The search of one partition, from its end to its start, a window of offsets at a time.

A log is read forwards only. A window is as wide as should fit one fetch by the sizes seen so far; within it the
batches are fetched in order until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from penstock.filters.matching import Filter
from penstock.gateway.search.matcher import Matcher
from penstock.gateway.search.scan import scan
from penstock.records.iteration import Record
from penstock.wire.fetch import FetchResult

T = TypeVar("T")

FETCH_BYTES = 2 * 1024 * 1024
_FIRST_WINDOW = 500
_MAX_GROWTH = 16


class SearchedRecords(Protocol):
    """Records of a cluster, as a search reads them."""

    async def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> FetchResult: ...

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]: ...

    async def in_pool(self, work: Callable[[], T]) -> T: ...

    def now_ms(self) -> int: ...


@dataclass(slots=True)
class PartitionSearch:
    topic: str
    partition: int
    start: int
    end: int
    """Offset below which the partition has yet to be searched."""
    filter: Filter | None = None
    """CEL expression that a match must satisfy, compiled for this partition."""
    window: int = _FIRST_WINDOW
    scanned_bytes: int = 0
    scanned_records: int = 0
    damaged: int = 0
    """Places whose records cannot be read, which were passed over."""
    failed: int = 0
    """Records on which the evaluation of the filter failed; they do not match."""

    @property
    def is_done(self) -> bool:
        return self.end <= self.start

    async def step(self, records: SearchedRecords, matcher: Matcher, max_matches: int) -> list[Record]:
        """Search the next window and return its matches, the newest first."""
        low = max(self.start, self.end - self.window)
        first, offset, found, size = low, low, [], 0
        while offset < self.end:
            result = await records.fetch(self.topic, self.partition, offset, FETCH_BYTES)
            fetched = memoryview(result.records)  # type: ignore[arg-type]
            # The first batch of a window is searched whole, so that the next window ends before it.
            since = self.start if offset == low else offset
            work = partial(scan, fetched, result.aborted_transactions, since, self.end, matcher, max_matches)
            scanned = await records.in_pool(partial(work, records.now_ms(), self.filter))
            if offset == low and 0 <= scanned.first_offset < low:
                first = scanned.first_offset
            found += scanned.matches
            del found[:-max_matches]
            size += len(fetched)
            self.scanned_records += scanned.records
            self.failed += scanned.failed
            if scanned.is_damaged:
                self.damaged += 1
            if scanned.next_offset <= offset or scanned.is_damaged:
                break
            offset = scanned.next_offset
        self.scanned_bytes += size
        self._adapt(self.end - first, size)
        self.end = first
        return found[::-1]

    def _adapt(self, offsets: int, size: int) -> None:
        """Choose the width of the next window by the size of this one."""
        wanted = offsets * FETCH_BYTES // max(1, size)
        self.window = max(1, min(wanted, self.window * _MAX_GROWTH))
