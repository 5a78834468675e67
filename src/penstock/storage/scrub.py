"""Scrubbing: verifying stored batches piece by piece, so that damage is found before a consumer reads it.

A piece is small, because its Python code runs in a thread pool beside the event loop. For each batch it verifies the
header fields, that offsets increase, that the CRC matches, and that the leader epoch, which the CRC does not cover, is
the one that the log has for this offset. Waits for the disk. The result is valid only if the segment is still part of
the log afterwards, because deletion, truncation and compaction may remove its file meanwhile.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from penstock.errors import CorruptLog
from penstock.model import NO_LEADER_EPOCH, Offset
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET, find_batch
from penstock.storage.damage import DamagedRange
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.segment import Segment

PIECE_BYTES = 256 * 1024
PIECE_BATCHES = 200
_OFFSETS = "the offsets of a batch do not follow the batch before it"
_EPOCH = "the leader epoch of a batch does not match the history of leader epochs"
_NO_EPOCHS = LeaderEpochs()


class Extent(NamedTuple):
    """The durable part of a segment: its bytes up to `size`, its offsets below `end_offset`."""

    segment: Segment
    size: int
    end_offset: Offset
    epochs: LeaderEpochs = _NO_EPOCHS
    """Leader epochs of the log; empty if leader epochs are not to be verified."""
    following: Segment | None = None


class BatchBoundary(NamedTuple):
    """A batch boundary, at which the scrub of a segment continues: offsets below `offset` are before `position`."""

    position: int
    offset: Offset
    last_position: int = 0
    """Position of the batch before `position`."""
    gap_start: Offset = Offset(-1)
    """Start of the gap in the offsets before the batch at `last_position`; -1 without a gap. Either compaction removed
    records, or the base offset of the batch is damaged.
    """
    suspect: Offset = Offset(-1)
    """Base offset of the batch at `last_position` if its leader epoch differs from the log's leader epochs and that of
    the batch before it does not; else -1.

    The batch is damaged if the epoch of the next batch agrees again. If it does not, the log's leader epochs are in
    doubt: they may have been rebuilt from a log with a damaged range.
    """
    is_epoch_known: bool | None = None
    """True if the leader epoch of the batch at `last_position` agrees with the log's leader epochs; None if no batch
    before `position` was verified.
    """
    is_backed: bool = False
    """True if the leader epoch of the batch before `suspect` agrees; it may be in the segment before."""


class Damaged(NamedTuple):
    """A damaged range of offsets, and its bytes: from `position` up to `end` in the segment."""

    damaged: DamagedRange
    segment: Segment
    position: int
    end: int


class Piece(NamedTuple):
    after: BatchBoundary
    read_bytes: int
    found: Damaged | None


def extents(log: Log) -> list[Extent]:
    """The segments to verify, oldest first: closed segments, and the active one up to the recovery point."""
    segments, mark, epochs = log.segments, log.mark, LeaderEpochs(log.leader_epochs.entries)
    found = [
        Extent(segment, segment.size, Offset(following.base_offset), epochs, following)
        for segment, following in pairwise(segments)
        if following.base_offset <= log.flushed_offset
    ]
    if segments and mark.base_offset == segments[-1].base_offset and mark.offset <= log.flushed_offset:
        found.append(Extent(segments[-1], mark.position, mark.offset, epochs))
    return found


def start_of(extent: Extent, before: BatchBoundary | None) -> BatchBoundary:
    """The boundary at the start of a segment. `before` is the end of the segment before it; None if not verified."""
    is_epoch_known = None if before is None else before.is_epoch_known
    return BatchBoundary(0, Offset(extent.segment.base_offset), is_epoch_known=is_epoch_known)


def scrub_piece(extent: Extent, place: BatchBoundary) -> Piece:
    """Verify some batches from `place` on, up to the first damaged batch. OSError if the file cannot be read."""
    position, offset, last_position, gap_start, suspect, is_epoch_known, is_backed = place
    file = extent.segment.file
    content = memoryview(file.pread(position, min(PIECE_BYTES, extent.size - position)))
    read_bytes = len(content)
    for _ in range(PIECE_BATCHES):
        here = position - place.position
        if position >= extent.size or (here > 0 and len(content) - here < HEADER_SIZE):
            break
        header = read_header(content, here) if len(content) - here >= HEADER_SIZE else None
        if header is None or not _is_framed(header, extent, position):
            return _damage_at(extent, position, offset, read_bytes, "no valid batch was found")
        if header.size > len(content) - here:
            if here > 0:
                break
            content = memoryview(file.pread(position, header.size))
            read_bytes += len(content)
        if not crc_matches(content[here:], header):
            return _damage_at(extent, position, offset, read_bytes, "the CRC of a batch does not match")
        if header.base_offset < offset:
            if 0 <= gap_start <= header.base_offset:
                next_offset = Offset(header.base_offset)
                return _wrong_offset(extent, position, next_offset, last_position, gap_start, read_bytes)
            return _damage_at(extent, position, offset, read_bytes, _OFFSETS)
        has_known_epoch = _has_known_epoch(header, extent.epochs)
        if has_known_epoch and suspect >= 0:
            return _wrong_epoch(extent, position, offset, last_position, suspect, read_bytes)
        is_first_doubt = is_epoch_known is not False and not has_known_epoch
        suspect = Offset(header.base_offset) if is_first_doubt else Offset(-1)
        is_backed = is_epoch_known is True
        is_epoch_known = has_known_epoch
        gap_start = offset if header.base_offset > offset else Offset(-1)
        last_position, offset = position, header.next_offset
        position += header.size
    if position >= extent.size and suspect >= 0 and (is_backed or _goes_on_as_known(extent)):
        return _wrong_epoch(extent, position, offset, last_position, suspect, read_bytes)
    after = BatchBoundary(position, offset, last_position, gap_start, suspect, is_epoch_known, is_backed)
    return Piece(after, read_bytes, None)


def _wrong_offset(
    extent: Extent, position: int, offset: Offset, last_position: int, gap_start: Offset, read_bytes: int
) -> Piece:
    """Report damage: the batch before `position` claims offsets of the next batch, which begins at `offset`."""
    damaged = DamagedRange(gap_start, offset, _OFFSETS)
    found = Damaged(damaged, extent.segment, last_position, position)
    return Piece(BatchBoundary(position, offset), read_bytes, found)


def _wrong_epoch(
    extent: Extent, position: int, offset: Offset, last_position: int, suspect: Offset, read_bytes: int
) -> Piece:
    """Report damage: the batch before `position` has a wrong leader epoch."""
    damaged = DamagedRange(suspect, offset, _EPOCH)
    found = Damaged(damaged, extent.segment, last_position, position)
    return Piece(BatchBoundary(position, offset), read_bytes, found)


def _has_known_epoch(header: BatchHeader, epochs: LeaderEpochs) -> bool:
    known = epochs.epoch_at(Offset(header.base_offset))
    return known in (NO_LEADER_EPOCH, header.leader_epoch)


def _goes_on_as_known(extent: Extent) -> bool:
    """True if the leader epoch of the first batch of the next segment agrees with the log's leader epochs."""
    following = extent.following
    if following is None or following.size < HEADER_SIZE:
        return False
    header = read_header(following.file.pread(0, HEADER_SIZE))
    return header.magic == MAGIC and _has_known_epoch(header, extent.epochs)


def _is_framed(header: BatchHeader, extent: Extent, position: int) -> bool:
    return (
        header.magic == MAGIC
        and HEADER_SIZE <= header.size <= extent.size - position
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and header.last_offset - extent.segment.base_offset <= MAX_RELATIVE_OFFSET
        and header.next_offset <= extent.end_offset
    )


def _damage_at(extent: Extent, position: int, offset: Offset, read_bytes: int, reason: str) -> Piece:
    """Report damage from `position` up to the next valid batch or the end of the segment."""
    segment = extent.segment
    try:
        found = find_batch(
            segment.file, position, extent.size, base_offset=segment.base_offset, min_offset=offset + 1
        )
    except CorruptLog:
        found = None  # the file ends too early
    if found is None:
        end, end_offset = extent.size, extent.end_offset
    else:
        end, end_offset = found[0], Offset(found[1].base_offset)
    damaged = DamagedRange(offset, end_offset, reason)
    return Piece(BatchBoundary(end, end_offset), read_bytes, Damaged(damaged, segment, position, end))
