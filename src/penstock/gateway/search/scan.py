"""The scan of fetched record batches for matches. Runs in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.gateway.fetched_records import MAX_BATCH_BYTES, NEVER_EXPIRED_MS, committed_batches
from penstock.gateway.search.matcher import Matcher
from penstock.records.batch import HEADER_SIZE
from penstock.records.compression import decompress
from penstock.records.expiry import is_expired
from penstock.records.iteration import Record, iterate
from penstock.wire.fetch import AbortedTransaction


class ScannedRecords(NamedTuple):
    matches: list[Record]
    """Matching records, oldest first."""
    records: int
    first_offset: int
    """First offset of the first batch, or `low` where that is later; -1 without a batch."""
    next_offset: int
    is_damaged: bool
    """Whether the scan ended at damaged records, at `next_offset`."""


def scan(
    fetched: memoryview,
    aborted: Sequence[AbortedTransaction] | None,
    low: int,
    high: int,
    matcher: Matcher,
    max_matches: int,
    now_ms: int = NEVER_EXPIRED_MS,
) -> ScannedRecords:
    """Return the matching committed records from offset `low` on and below `high` that have not expired at `now_ms`;
    the newest `max_matches` of them.
    """
    matches: list[Record] = []
    records, first_offset, next_offset = 0, -1, low
    try:
        for header, batch, is_shown in committed_batches(fetched, aborted):
            if header.base_offset >= high:
                next_offset = high
                break
            if first_offset < 0:
                first_offset = max(low, header.base_offset)
            if is_shown:
                records += min(header.next_offset, high) - max(header.base_offset, low)
                body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], MAX_BATCH_BYTES))
                if matcher.may_match(body):
                    found = iterate(batch, header, max_decompressed_bytes=MAX_BATCH_BYTES)
                    matches += (
                        each
                        for each in found
                        if low <= each.offset < high
                        and not is_expired(each.timestamp, each.headers, now_ms)
                        and matcher.matches(each)
                    )
                    del matches[:-max_matches]
            next_offset = max(next_offset, header.next_offset)
    except InvalidBatch:
        return ScannedRecords(matches, records, first_offset, next_offset, True)
    return ScannedRecords(matches, records, first_offset, min(next_offset, high), False)
