"""Batches of a projection in memory, as the spans of an acquisition.

A window covers all offsets from its first to its last: with batches of matching records, and with control batches for
the offsets between them. Offsets without a matching record are hidden spans, which the share group settles. A long
range is one span, so that the size of the group's state depends on the matching records and not on the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.queues.acquiring import Span
from penstock.queues.states import Acquired
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import decompress
from penstock.records.iteration import read_batches
from penstock.records.walking import layouts
from penstock.storage.aborted_transactions import AbortedTransactions


class WindowBatch(NamedTuple):
    header: BatchHeader
    content: memoryview
    runs: tuple[tuple[int, int], ...]
    """First and last offsets of the ranges of consecutive records; empty for a control batch."""


class ProjectedWindow:
    """Consecutive batches of a projection."""

    def __init__(self, first: int, records: bytes, max_decompressed_bytes: int) -> None:
        """Decompresses compressed batches, which takes long: to be called in a thread pool."""
        self.first = first
        self.batches = [
            WindowBatch(header, batch, _runs(batch, header, max_decompressed_bytes))
            for header, batch in read_batches(memoryview(records))
        ]
        self.end = self.batches[-1].header.next_offset if self.batches else first
        """Offset after the last batch."""

    def has(self, offset: int) -> bool:
        return self.first <= offset < self.end


class WindowSpans:
    """Iterable of the spans of a window from `first` to `last`. It keeps the iterated batches, for `slices`."""

    def __init__(
        self,
        window: ProjectedWindow,
        first: int,
        last: int,
        max_bytes: int,
        aborted: AbortedTransactions | None,
        sent: int | None = None,
    ) -> None:
        """`aborted` is None unless the group reads only committed records.

        For `sent` see `RecordSource.spans`.
        """
        self._window = window
        self._first = first
        self._last = last
        self._max_bytes = max_bytes
        self._aborted = aborted
        self._sent = sent
        self._batches: list[WindowBatch] = []

    def __iter__(self) -> Iterator[Span]:
        batches, offset, size = self._window.batches, self._first, 0
        for place in range(
            bisect_left(batches, offset, key=lambda each: each.header.last_offset), len(batches)
        ):
            batch = batches[place]
            if offset > self._last:
                return
            if self._is_shown(batch.header):
                size += len(batch.content)
                is_first = not self._batches and (
                    self._sent is None or batch.header.last_offset <= self._sent
                )
                if size > self._max_bytes and not is_first:
                    return
                self._batches.append(batch)
                yield from self._spans(batch, offset)
            else:
                yield Span(offset, min(batch.header.last_offset, self._last), is_hidden=True)
            offset = batch.header.next_offset

    def _spans(self, batch: WindowBatch, offset: int) -> Iterator[Span]:
        for first, last in (*batch.runs, (batch.header.next_offset, -1)):
            if offset < first and offset <= self._last:
                yield Span(offset, min(first - 1, self._last), is_hidden=True)
            offset = max(offset, first)
            if offset <= min(last, self._last):
                yield Span(offset, min(last, self._last))
                offset = last + 1

    def _is_shown(self, header: BatchHeader) -> bool:
        if header.is_control:
            return False
        is_aborted = self._aborted is not None and header.is_transactional
        return not (
            is_aborted
            and self._aborted is not None
            and self._aborted.has(header.producer_id, header.base_offset)
        )

    def slices(self, acquired: Sequence[Acquired], sent: int) -> tuple[Sequence[memoryview], int]:
        found: list[memoryview] = []
        place = 0
        for header, content, _ in self._batches:
            while place < len(acquired) and acquired[place].last_offset < header.base_offset:
                place += 1
            if place == len(acquired):
                break
            if acquired[place].first_offset > header.last_offset or header.last_offset <= sent:
                continue
            sent = header.last_offset
            found.append(content)
        return found, sent


def _runs(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> tuple[tuple[int, int], ...]:
    if header.is_control:
        return ()
    base = header.base_offset
    if header.record_count == header.last_offset - base + 1:
        return ((base, header.last_offset),)
    try:
        body = decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes)
        offsets = [base + layout[3] for layout in layouts(body, header.record_count)]
    except InvalidBatch:
        return ()
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] + 1 == offset:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return tuple(runs)
