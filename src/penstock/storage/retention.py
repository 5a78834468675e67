"""Retention: how much of a log is too old or too much. What it names is then deleted by `Log.begin_delete`.

Whole segments go, oldest first, and nothing at or above the high watermark. The segment that is written goes
only when all of the log has expired; the log then goes on in a new one. Waits for the disk: for a pool.
"""

from __future__ import annotations

from penstock.model import Offset
from penstock.storage.log import Log
from penstock.storage.segment import NO_TIMESTAMP, Segment


def retained_from(log: Log, now_ms: int, high_watermark: Offset) -> Offset:
    """The offset the log shall start at; its present start when nothing is to go."""
    config = log.config
    # The end before the segments: what is appended in between is then not taken for expired.
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
        too_much = config.retention_bytes >= 0 and surplus_bytes >= 0 and closed
        if segment_end > limit or not (too_much or _is_expired(segment, config.retention_ms, now_ms)):
            break
        start_offset = max(start_offset, Offset(segment_end))
    return start_offset


def _is_expired(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0 or segment.size == 0:
        return False
    newest = segment.newest_timestamp(wait=True)
    if newest == NO_TIMESTAMP:
        # Records without a time age from when the segment was begun; where that is not known they stay.
        newest = segment.created_ms or now_ms
    return now_ms - newest > retention_ms
