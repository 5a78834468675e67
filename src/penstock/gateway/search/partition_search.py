"""Search of one partition from its end to its start, one window of offsets at a time.

A log can only be read forwards, so the batches of a window are fetched in order up to its end. The width of a window is
chosen, by the sizes of the records found so far, so that one fetch returns the whole window.
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
    """Access to the records of a cluster that a search needs."""

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
    """Offset from which on the partition has been searched."""
    filter: Filter | None = None
    """CEL expression that a match must satisfy, compiled for this partition."""
    window: int = _FIRST_WINDOW
    scanned_bytes: int = 0
    scanned_records: int = 0
    damaged: int = 0
    """Number of places whose records were skipped because they cannot be read."""
    failed: int = 0
    """Number of records for which the evaluation of the filter failed; they do not match."""

    @property
    def is_done(self) -> bool:
        return self.end <= self.start

    async def step(self, records: SearchedRecords, matcher: Matcher, max_matches: int) -> list[Record]:
        """Search the next window, and return at most `max_matches` matches, newest first."""
        low = max(self.start, self.end - self.window)
        first, offset, found, size = low, low, [], 0
        while offset < self.end:
            result = await records.fetch(self.topic, self.partition, offset, FETCH_BYTES)
            fetched = memoryview(result.records)  # type: ignore[arg-type]
            # The first batch may begin before the window. It is searched completely, and the next window ends
            # before it.
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
        """Choose the width of the next window: this one had `offsets` offsets and `size` bytes."""
        wanted = offsets * FETCH_BYTES // max(1, size)
        self.window = max(1, min(wanted, self.window * _MAX_GROWTH))
