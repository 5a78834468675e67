"""Retention: the offset up to which a log is too old or too large. `LogJobs.begin_delete` then deletes the segments.

Whole segments are deleted, oldest first, and nothing at or above the high watermark. The active segment is deleted only
if the whole log has expired; the log then continues in a new one. Waits for the disk: call it in a pool.
"""

from __future__ import annotations

from penstock.model import Offset
from penstock.storage.log import Log
from penstock.storage.segment import NO_TIMESTAMP, Segment


def retained_from(log: Log, now_ms: int, high_watermark: Offset, *, by_size: bool = True) -> Offset:
    """The new log start offset; the present one if nothing is to be deleted. Without `by_size`, only age counts."""
    config = log.config
    # Read the log end before the segments: records that are appended in between then do not count as expired.
    end_offset = log.log_end_offset
    segments = log.segments
    start_offset = log.log_start_offset
    if not config.deletes:
        return start_offset
    limit = min(high_watermark, end_offset)
    surplus_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    for place, segment in enumerate(segments):
        closed = place + 1 < len(segments)
        segment_end = segments[place + 1].base_offset if closed else end_offset
        surplus_bytes -= segment.size
        too_much = by_size and config.retention_bytes >= 0 and surplus_bytes >= 0 and closed
        if segment_end > limit or not (too_much or _is_expired(segment, config.retention_ms, now_ms)):
            break
        start_offset = max(start_offset, Offset(segment_end))
    return start_offset


def _is_expired(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0 or segment.size == 0:
        return False
    newest = segment.newest_timestamp(wait=True)
    if newest == NO_TIMESTAMP:
        # Records without a timestamp have the age of their segment; if that is unknown, they are kept.
        newest = segment.created_ms or now_ms
    return now_ms - newest > retention_ms
