"""Offset lookup in an archive: the first offset of a partition, and the first offset at or after a time.

Uses the file statistics in the table's log. Rows are read only if the statistics do not decide the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.archive.file_reader import read_archived
from penstock.pipeline.archive.table import FileBounds
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.table_store import Store

_EVERYTHING = (1 << 63) - 1


def first_offset(files: Iterable[FileBounds], topic_id: str, partition: int) -> int | None:
    """First archived offset of a partition; None if the archive has no records of it."""
    return min((low for low, _ in _files_of(files, topic_id, partition)), default=None)


def offset_at_time(
    store: Store, files: Iterable[FileBounds], topic_id: str, partition: int, time_ms: int
) -> int | None:
    """Offset of the first record at or after a time; None if all records are older."""
    time = pa.scalar(time_ms, pa.timestamp("ms", tz="UTC"))
    earliest: int | None = None
    for low, file in sorted(_files_of(files, topic_id, partition), key=lambda each: each[0]):
        if earliest is not None and low >= earliest:
            break
        if file.times is not None and file.times[1] < datetime.fromtimestamp(time_ms / 1000, UTC):
            continue
        end = _EVERYTHING if earliest is None else earliest
        wanted = OffsetRange(file.topic, topic_id, partition, low, end)
        for rows in read_archived(store, [file], wanted, ("offset", "timestamp")):
            late = rows.filter(pc.greater_equal(rows.column("timestamp"), time))
            if late.num_rows:
                found = late.column("offset")[0].as_py()
                earliest = found if earliest is None else min(earliest, found)
                break
    return earliest


def _files_of(files: Iterable[FileBounds], topic_id: str, partition: int) -> list[tuple[int, FileBounds]]:
    """Files that may hold records of the partition, each with its lowest possible offset."""
    return [
        (file.offsets[0] if file.offsets else 0, file)
        for file in files
        if file.may_hold(topic_id, partition, 0, _EVERYTHING)
    ]
