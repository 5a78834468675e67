"""The search of a topic: all partitions in rounds, with results and progress as events.

A round searches one window of every partition and sorts its matches by time, so the newest come first as far as
partitions keep step. The search ends with the last record, the limit of matches, or its budget of bytes and
seconds, and says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.gateway.message_forms import show_record
from penstock.gateway.push.stream import Event
from penstock.gateway.records import GatewayRecords
from penstock.gateway.search.matcher import Matcher
from penstock.gateway.search.partition_search import PartitionSearch
from penstock.records.iteration import Record

PROGRESS_SECONDS = 0.5
PARTITIONS_AT_ONCE = 4


class TopicSearch:
    """Results of a search; an `EventSource`."""

    def __init__(
        self,
        records: GatewayRecords,
        clock: Clock,
        matcher: Matcher,
        partitions: Sequence[PartitionSearch],
        query: Mapping[str, Any],
        on_finish: Callable[[], None],
    ) -> None:
        self.is_exhausted = False
        self._records = records
        self._clock = clock
        self._matcher = matcher
        self._partitions = partitions
        self._limit: int = query.get("limit", 100)
        self._max_bytes: int = query.get("max_bytes", 1024 * 1024 * 1024)
        self._deadline = clock.monotonic() + query.get("max_seconds", 60)
        self._started = clock.monotonic()
        self._total = sum(each.end - each.start for each in partitions)
        self._found = 0
        self._number = 0
        self._on_finish = on_finish

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        """Search until there are matches, or for half a second; the last event says why the search ended."""
        began = self._clock.monotonic()
        events: list[Event] = []
        while not events and not self._reason():
            events = [self._match(*each) for each in await self._round()]
            if self._clock.monotonic() - began > PROGRESS_SECONDS:
                break
        reason = self._reason()
        self.is_exhausted = bool(reason)
        return [*events, self._event({"type": "end" if reason else "progress", **self._progress(reason)})]

    async def _round(self) -> list[tuple[int, Record]]:
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
    def _is_over_budget(self) -> bool:
        read = sum(each.scanned_bytes for each in self._partitions)
        return read >= self._max_bytes or self._clock.monotonic() >= self._deadline

    def _reason(self) -> str:
        """Return why the search ends; empty while it continues."""
        if self._found >= self._limit:
            return "limit"
        if all(each.is_done for each in self._partitions):
            return "complete"
        if sum(each.scanned_bytes for each in self._partitions) >= self._max_bytes:
            return "bytes"
        return "seconds" if self._clock.monotonic() >= self._deadline else ""

    def _match(self, partition: int, record: Record) -> Event:
        return self._event({"type": "match", "message": show_record(record, partition)})

    def _progress(self, reason: str) -> dict[str, Any]:
        left = sum(each.end - each.start for each in self._partitions)
        return {
            "matches": self._found,
            "scanned_bytes": sum(each.scanned_bytes for each in self._partitions),
            "scanned_records": sum(each.scanned_records for each in self._partitions),
            "damaged": sum(each.damaged for each in self._partitions),
            "fraction": round(1 - left / self._total, 4) if self._total else 1,
            "seconds": round(self._clock.monotonic() - self._started, 3),
            "reason": reason,
        }

    def _event(self, content: Mapping[str, Any]) -> Event:
        self._number += 1
        return Event(str(self._number), msgspec.json.encode(content))

    async def finish(self) -> None:
        self._on_finish()
