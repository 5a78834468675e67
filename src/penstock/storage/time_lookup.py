"""Lookup of records by time: the first record at or after a timestamp, and the record with the greatest timestamp.

Reads batch headers, and the records of the batch that has the result. May wait for the disk: runs in a thread pool.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import LOG_APPEND_TIME_FLAG, BatchHeader
from penstock.records.iteration import iterate
from penstock.storage.batch_scan import read_batch
from penstock.storage.index import IndexEntry
from penstock.storage.segment import Segment


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


def find_timestamp(
    segments: tuple[Segment, ...], timestamp: int, start_offset: int, below: int
) -> TimestampOffset | None:
    """The first record in [`start_offset`, `below`) whose timestamp is at or after `timestamp`; None without one."""
    for place, segment in enumerate(segments):
        if segment.base_offset >= below:
            break
        if place + 1 < len(segments) and segments[place + 1].base_offset <= start_offset:
            continue
        size = segment.size  # read before the newest timestamp, which an append may raise meanwhile
        if segment.newest_timestamp(wait=True) < timestamp:
            continue
        for position, header in segment.walk(size, segment.before_timestamp(timestamp, wait=True), wait=True):
            if header.base_offset >= below:
                return None
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                found = _find_record(segment, position, header, timestamp, start_offset)
                if found is not None:
                    return found if found.offset < below else None
    return None


def find_newest(
    segments: tuple[Segment, ...], start_offset: int, below: int, log_end_offset: int
) -> TimestampOffset | None:
    """The first record in [`start_offset`, `below`) with the greatest timestamp in that range."""
    newest = -1
    for place, segment in enumerate(segments):
        end = segments[place + 1].base_offset if place + 1 < len(segments) else log_end_offset
        if segment.base_offset < below and end > start_offset:
            whole = segment.base_offset >= start_offset and end <= below
            newest = max(
                newest,
                segment.newest_timestamp(wait=True) if whole else _newest(segment, start_offset, below),
            )
    return find_timestamp(segments, newest, start_offset, below)


def _newest(segment: Segment, start_offset: int, below: int) -> int:
    """The greatest timestamp of the records of a segment in [`start_offset`, `below`)."""
    size = segment.size
    position, header = segment.locate(start_offset, size, wait=True)
    if header is None:
        return -1
    start = IndexEntry(header.base_offset - segment.base_offset, position, -1)
    newest = -1
    for position, header in segment.walk(size, start, wait=True):
        if header.base_offset >= below:
            break
        if header.max_timestamp > newest:
            newest = max(newest, _newest_record(segment, position, header, start_offset, below))
    return newest


def _newest_record(
    segment: Segment, position: int, header: BatchHeader, start_offset: int, below: int
) -> int:
    if header.base_offset >= start_offset and header.last_offset < below:
        return header.max_timestamp
    try:
        records = iterate(read_batch(segment.file, position, header), header)
        visible = (record for record in records if start_offset <= record.offset < below)
        return max((record.timestamp for record in visible), default=-1)
    except InvalidBatch:
        return header.max_timestamp


def _find_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    epoch = LeaderEpoch(header.leader_epoch)
    whole_batch = TimestampOffset(header.max_timestamp, Offset(max(header.base_offset, start_offset)), epoch)
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return whole_batch
    try:
        for record in iterate(read_batch(segment.file, position, header), header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, Offset(record.offset), epoch)
    except InvalidBatch:
        return whole_batch  # the records cannot be read, so the batch as a whole is the result
    return None
