"""Appends of a follower: the whole batches of a range fetched from the leader, with their offsets and epochs.

Loop thread only. After an error, batches that were written to earlier segments stay appended; the others are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import BatchHeader
from penstock.storage.follower_batches import FetchedBatch, check_fetched, fill_gap
from penstock.storage.segment import Segment

if TYPE_CHECKING:
    from penstock.storage.log import Log


def append_fetched(log: Log, records: memoryview, leader_epoch: LeaderEpoch, now_ms: int) -> None:
    batches = check_fetched(records, log.log_end_offset, log.last_epoch, leader_epoch)
    place = 0
    while place < len(batches):
        _fill_gap_before(log, batches[place].header, now_ms)
        place = _append_run(log, records, batches, place, now_ms)


def _fill_gap_before(log: Log, header: BatchHeader, now_ms: int) -> None:
    """Append empty batches if `header` is too far above the log end for the relative offsets of one segment."""
    limit = log.config.max_relative_offset
    while header.last_offset - log.log_end_offset > limit and header.base_offset > log.log_end_offset:
        filler, fetched = fill_gap(log.log_end_offset, log.last_epoch, header)
        _append_run(log, filler, [fetched], 0, now_ms)


def _append_run(log: Log, records: memoryview, batches: list[FetchedBatch], place: int, now_ms: int) -> int:
    """Write the batches from `place` on that fit into one segment; return the place of the first that does not fit.

    A new segment is named after the log end, not after its first batch: compaction leaves gaps between batches, and
    recovery takes a gap between the log end and the next segment's name for a lost file.
    """
    start, first = batches[place]
    segments, segment, position = log.segment_list, log.segment_list.active, 0
    if segment is not None and not log.must_roll(segment, first.size, first.last_offset, now_ms):
        position, base_offset = segment.size, segment.base_offset
    else:
        segment, base_offset = None, log.log_end_offset
    after, end = _end_of_run(log, batches, place, position, base_offset)
    content = records[start:end]
    try:
        if segment is None:
            segment = segments.start(Offset(base_offset), now_ms, content)
        else:
            (segment.writer or segments.pin(segment)).pwrite(position, (content,))
    except OSError as error:
        raise log.write_failed(error) from error
    if position == 0:
        segment.created_ms = now_ms
    for batch_position, header in batches[place:after]:
        _remember(log, segment, position + batch_position - start, header, now_ms)
        if header.is_control:
            log.apply_control(records[batch_position:], header, header.base_offset, now_ms)
    # The log end before the size, as in `Log.append`.
    log.log_end_offset = batches[after - 1].header.next_offset
    segment.size = position + len(content)
    return after


def _end_of_run(
    log: Log, batches: list[FetchedBatch], place: int, position: int, base_offset: int
) -> tuple[int, int]:
    """The place of the first batch that does not fit into the segment, and the end of the bytes before it."""
    config = log.config
    segment_bytes, max_relative_offset = config.segment_bytes, config.max_relative_offset
    start, first = batches[place]
    after, end = place + 1, start + first.size
    while after < len(batches):
        header = batches[after].header
        if (
            position + end - start + header.size > segment_bytes
            or header.last_offset - base_offset > max_relative_offset
        ):
            break
        after, end = after + 1, end + header.size
    return after, end


def _remember(log: Log, segment: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
    """Update index, epochs and producers after a fetched batch was written at `position`."""
    if position - segment.indexed_size >= log.config.index_interval_bytes:
        segment.add_index_entry(header.base_offset, position)
    segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
    if header.leader_epoch != log.latest_epoch:
        log.leader_epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        log.latest_epoch = log.leader_epochs.latest
    if header.producer_id >= 0 and not header.is_control:
        log.producers.record(header, header.base_offset, header.max_timestamp, now_ms)
