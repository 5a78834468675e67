"""Decoding of fetched batches as for a read_committed consumer: without control records and aborted transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, crc_matches
from penstock.records.control import read_marker
from penstock.records.expiry import is_expired
from penstock.records.iteration import Record, iterate, read_batches
from penstock.wire.fetch import AbortedTransaction

NEVER_EXPIRED_MS = -1
"""Value of `now_ms` at which no record has expired."""
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Maximum size of one batch after decompression."""


def committed_batches(
    records: memoryview, aborted: Sequence[AbortedTransaction] | None
) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """Yield each batch in order: its header, its bytes, and True if a read_committed consumer sees its records.

    Raises CORRUPT_MESSAGE at a batch whose CRC does not match, or whose offsets overlap with the previous batch.
    """
    firsts = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    ongoing: set[int] = set()
    next_offset = 0
    for header, batch in read_batches(records):
        if not crc_matches(batch, header):
            raise InvalidBatch(ErrorCode.corrupt_message, "the CRC of the batch does not match")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise InvalidBatch(
                ErrorCode.corrupt_message, "the offsets of the batch overlap with the batch before it"
            )
        next_offset = header.next_offset
        while firsts and firsts[-1].first_offset <= header.base_offset:
            ongoing.add(firsts.pop().producer_id)
        if header.attributes & CONTROL_FLAG:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                ongoing.discard(header.producer_id)
            yield header, batch, False
        else:
            is_aborted = header.attributes & TRANSACTIONAL_FLAG and header.producer_id in ongoing
            yield header, batch, not is_aborted


def take_records(
    records: memoryview,
    aborted: Sequence[AbortedTransaction] | None,
    from_offset: int,
    max_records: int,
    now_ms: int = NEVER_EXPIRED_MS,
) -> tuple[tuple[Record, ...], int]:
    """Return at most `max_records` records from `from_offset` on, without expired ones, and the next offset to read.

    If there are damaged records, the next offset is theirs. The following call then begins with them and raises
    CORRUPT_MESSAGE, so that no record is skipped silently.
    """
    taken: list[Record] = []
    next_offset = from_offset
    try:
        for header, batch, is_shown in committed_batches(records, aborted):
            if is_shown:
                for record in iterate(batch, header, max_decompressed_bytes=MAX_BATCH_BYTES):
                    if record.offset < from_offset:
                        continue
                    if record.headers and is_expired(record.timestamp, record.headers, now_ms):
                        continue
                    if len(taken) == max_records:
                        return tuple(taken), record.offset
                    taken.append(record)
            next_offset = max(next_offset, header.next_offset)
    except InvalidBatch:
        if next_offset == from_offset:
            raise
        taken = [record for record in taken if record.offset < next_offset]
    return tuple(taken), next_offset
