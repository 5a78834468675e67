"""The records of a fetched range as a reader of committed data sees them: no markers, nothing that was aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, crc_matches
from penstock.records.control import read_marker
from penstock.records.iteration import Record, iterate, read_batches
from penstock.wire.fetch import AbortedTransaction

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Of one batch, when it is decompressed."""


def committed_batches(
    records: memoryview, aborted: Sequence[AbortedTransaction] | None
) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """Each batch in order, and whether its records are for readers. CORRUPT_MESSAGE at a batch whose CRC does not
    match, or that lies before its predecessor's end."""
    firsts = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    ongoing: set[int] = set()
    next_offset = 0
    for header, batch in read_batches(records):
        if not crc_matches(batch, header):
            raise InvalidBatch(ErrorCode.corrupt_message, "the CRC of the batch does not match")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise InvalidBatch(ErrorCode.corrupt_message, "the offsets of the batch go back")
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
) -> tuple[tuple[Record, ...], int]:
    """Those from an offset on, as many as wanted, and the offset to go on with: that of damaged records, if there are
    any. CORRUPT_MESSAGE where the damage comes first, so that nothing is passed over."""
    taken: list[Record] = []
    next_offset = from_offset
    try:
        for header, batch, is_shown in committed_batches(records, aborted):
            if is_shown:
                for record in iterate(batch, header, max_decompressed_bytes=MAX_BATCH_BYTES):
                    if record.offset < from_offset:
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
