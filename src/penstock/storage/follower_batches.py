"""Checks on the batches that a follower fetched, before any of them is written.

The leader has accepted the batches, so the rules for clients do not apply: there may be gaps that compaction left,
control batches, any producer sequence, and attributes that only compaction sets. Each batch must be complete and begin
at or above the log end, and its leader epoch must be between the last epoch in the log and the leader's epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import MAGIC, BatchHeader, crc_matches, read_header
from penstock.records.building import with_records
from penstock.records.iteration import read_batches
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET

MAX_GAP = 1 << 42
"""Maximum number of offsets between two batches. A wider gap means that a base offset, which has no CRC, is damaged."""


class FetchedBatch(NamedTuple):
    position: int
    header: BatchHeader


def check_fetched(
    records: memoryview, log_end: Offset, last_epoch: LeaderEpoch, leader_epoch: LeaderEpoch
) -> list[FetchedBatch]:
    """The batches of `records` to append at `log_end`, after a record of `last_epoch`. An incomplete last batch is
    dropped.

    Only the batches before the first damaged batch are returned; CORRUPT_MESSAGE if the first batch is damaged.
    """
    found: list[FetchedBatch] = []
    position = 0
    try:
        for header, batch in read_batches(records):
            _check(header, batch, log_end, last_epoch, leader_epoch)
            found.append(FetchedBatch(position, header))
            log_end, last_epoch = header.next_offset, LeaderEpoch(header.leader_epoch)
            position += header.size
    except BrokerError:
        if not found:
            raise
    return found


def _check(
    header: BatchHeader,
    batch: memoryview,
    log_end: Offset,
    last_epoch: LeaderEpoch,
    leader_epoch: LeaderEpoch,
) -> None:
    if not crc_matches(batch, header):
        raise BrokerError(
            ErrorCode.corrupt_message, f"the CRC of the batch at offset {header.base_offset} does not match"
        )
    if header.base_offset < log_end or header.last_offset_delta < 0:
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the fetched batch at offset {header.base_offset} is below the log end offset {log_end}",
        )
    if not last_epoch <= header.leader_epoch <= leader_epoch:
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the fetched batch has leader epoch {header.leader_epoch}, outside of {last_epoch} to {leader_epoch}",
        )
    if header.base_offset - log_end > MAX_GAP:
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the fetched batch at offset {header.base_offset} is too far above the log end offset {log_end}",
        )


def fill_gap(
    log_end: Offset, last_epoch: LeaderEpoch, behind: BatchHeader
) -> tuple[memoryview, FetchedBatch]:
    """An empty batch that covers the offsets from `log_end` up to the batch `behind`, or as many as one batch can.

    Compaction leaves empty batches too, so that clients accept them. `last_epoch` is the epoch before the gap.
    """
    header = BatchHeader(
        base_offset=log_end,
        batch_length=0,
        leader_epoch=last_epoch if last_epoch >= 0 else behind.leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=min(behind.base_offset - 1 - log_end, MAX_RELATIVE_OFFSET),
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    batch = memoryview(with_records(header, ()))
    return batch, FetchedBatch(0, read_header(batch))
