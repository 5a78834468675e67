"""Scan of fetched record batches for matches. Runs in a thread pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.filters.matching import Filter
from penstock.gateway.fetched_records import MAX_BATCH_BYTES, NEVER_EXPIRED_MS, committed_batches
from penstock.gateway.search.matcher import Matcher
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import decompress
from penstock.records.expiry import is_expired
from penstock.records.iteration import Record, iterate
from penstock.wire.fetch import AbortedTransaction


class ScannedRecords(NamedTuple):
    matches: list[Record]
    """Matching records, oldest first."""
    records: int
    first_offset: int
    """First offset of the first batch, but at least `low`; -1 if there is no batch."""
    next_offset: int
    is_damaged: bool
    """True if the scan ended early, because the records at `next_offset` are damaged."""
    failed: int = 0
    """Number of records for which the evaluation of the filter failed."""


def scan(
    fetched: memoryview,
    aborted: Sequence[AbortedTransaction] | None,
    low: int,
    high: int,
    matcher: Matcher,
    max_matches: int,
    now_ms: int = NEVER_EXPIRED_MS,
    chosen: Filter | None = None,
) -> ScannedRecords:
    """Return the newest `max_matches` of the matching committed records with offsets from `low` to below `high`.
    Records that have expired at `now_ms`, and those that the filter `chosen` does not select, are left out.
    """
    matches: list[Record] = []
    records, first_offset, next_offset, failed = 0, -1, low, 0
    try:
        for header, batch, is_shown in committed_batches(fetched, aborted):
            if header.base_offset >= high:
                next_offset = high
                break
            first_offset = first_offset if first_offset >= 0 else max(low, header.base_offset)
            if is_shown:
                records += min(header.next_offset, high) - max(header.base_offset, low)
                body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], MAX_BATCH_BYTES))
                if matcher.may_match(body):
                    selected = _Selection(chosen, body, header)
                    failed += selected.failed
                    matches += (
                        each
                        for each in iterate(batch, header, max_decompressed_bytes=MAX_BATCH_BYTES)
                        if low <= each.offset < high
                        and each.offset in selected
                        and not is_expired(each.timestamp, each.headers, now_ms)
                        and matcher.matches(each)
                    )
                    del matches[:-max_matches]
            next_offset = max(next_offset, header.next_offset)
    except InvalidBatch:
        return ScannedRecords(matches, records, first_offset, next_offset, True, failed)
    return ScannedRecords(matches, records, first_offset, min(next_offset, high), False, failed)


class _Selection:
    """Offsets of a batch that a filter selects; all offsets if there is no filter."""

    def __init__(self, chosen: Filter | None, body: bytes, header: BatchHeader) -> None:
        self.failed = 0
        self._offsets: set[int] | None = None
        if chosen is not None:
            matches, self.failed = chosen.select(body, header)
            self._offsets = {header.base_offset + each.offset_delta for each in matches}

    def __contains__(self, offset: int) -> bool:
        return self._offsets is None or offset in self._offsets
