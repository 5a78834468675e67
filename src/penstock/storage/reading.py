"""Location of the bytes of a read: maps offsets to a byte range of one segment file, without decoding records.

Any thread. The caller passes the segments as they are when the read starts; `Log` explains why this is safe.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, Protocol

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.log_slice import LogSlice
from penstock.storage.index import POSITION
from penstock.storage.segment import Segment

_MAX_BOUNDARIES = 8


class Boundaries:
    """Cache of recently found batch boundaries, from which readers near the end of the log continue.

    The loop thread adds boundaries; any thread may look them up.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[Segment, int]] = {}

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        places = self._places
        if offset not in places and len(places) >= _MAX_BOUNDARIES:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def position(self, offset: int, segment: Segment) -> int | None:
        place = self._places.get(offset)
        return place[1] if place is not None and place[0] is segment else None


class ReadableLog(Protocol):
    log_end_offset: Offset
    boundaries: Boundaries


def floor_segment(segments: tuple[Segment, ...], offset: int) -> int:
    """Index of the last segment whose base offset is not above `offset`; -1 if all segments start after it."""
    last = len(segments) - 1
    if last >= 0 and offset >= segments[last].base_offset:
        return last
    return bisect_right(segments, offset, key=_base_offset) - 1


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


class Found(NamedTuple):
    """Result of a read: a range of bytes and its segment. The last batch may be incomplete."""

    segment: Segment
    records: LogSlice


def read_slice(
    log: ReadableLog,
    segments: tuple[Segment, ...],
    offset: int,
    max_bytes: int,
    below: int,
    at_least_one: bool,
    wait: bool,
) -> Found | None:
    """Find the bytes for `LogReader.read`. If compaction removed `offset`, the read starts at the next stored batch."""
    for place in range(max(floor_segment(segments, offset), 0), len(segments)):
        segment = segments[place]
        if segment.base_offset >= below:
            break
        last = place + 1 == len(segments) or segments[place + 1].base_offset > below
        end = end_position(log, segment, below, wait) if last else segment.size
        start, header = log.boundaries.position(offset, segment), None
        if start is None:
            start, header = segment.locate(offset, end, wait)
        length = end - start
        if length <= 0:
            continue
        if length > max_bytes:
            first = (header or segment.header_at(start, wait)).size
            if first <= max_bytes:
                length = max_bytes
            elif at_least_one:
                length = first
            else:
                break
        return Found(segment, LogSlice(segment.file, start, length))
    return None


def end_offset(found: Found, below: int, wait: bool) -> int:
    """Base offset of the batch after the bytes of `found`, at most `below`; `below` if there is none."""
    segment, end = found.segment, found.records.position + found.records.length
    try:
        for position, header in segment.walk(segment.size, segment.find(POSITION, end, wait), wait=wait):
            if position >= end:
                return min(header.base_offset, below)
    except (CorruptLog, OSError):
        pass  # damaged, or deleted meanwhile
    return below


def end_position(log: ReadableLog, segment: Segment, below: int, wait: bool) -> int:
    """Position of the first batch that contains `below` or a later offset."""
    size = segment.size
    if log.log_end_offset == below:  # read after the size, so that both belong together
        end: int | None = size
    else:
        end = log.boundaries.position(below, segment)
    if end is None:
        end, _ = segment.locate(below, size, wait)
    if not wait:
        log.boundaries.remember(below, segment, end)
    return end
