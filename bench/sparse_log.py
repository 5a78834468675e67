"""Adds terabytes to the partitions of a stopped broker with sparse segments and complete indexes.

Sizes, indexes and checkpoint, which a start and an append read, are those of a written log. The old batches
are holes and must not be read.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from penstock.model import Offset
from penstock.storage.checkpoints import Checkpoints, LogCheckpoint, RecoveryMark
from penstock.storage.disk import RealDisk
from penstock.storage.index import encode_entries
from penstock.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_name

BATCH_BYTES = 4_096
RECORDS_A_BATCH = 4
SEGMENT_BYTES = 1 << 30
ENTRIES = SEGMENT_BYTES // BATCH_BYTES
SEGMENT_RECORDS = ENTRIES * RECORDS_A_BATCH
LOGS = "logs"


def grow(data_dir: Path, topic: str, segments: int) -> int:
    """Add `segments` full segments to every partition of an empty topic, and return the bytes of their
    indexes.
    """
    checkpoints = Checkpoints(RealDisk(str(data_dir)))
    entries = checkpoints.load() or []
    index_bytes = 0
    grown = []
    for entry in entries:
        if entry.topic == topic:
            (directory,) = (data_dir / LOGS).glob(f"{topic}-{entry.partition}-*")
            index_bytes += sum(
                _write_segment(directory, number * SEGMENT_RECORDS) for number in range(segments)
            )
            entry = _at_end(entry, segments)
        grown.append(entry)
    checkpoints.write(grown, both=True)
    return index_bytes


def _write_segment(directory: Path, base_offset: int) -> int:
    path = directory / segment_name(base_offset)
    with path.with_suffix(LOG_SUFFIX).open("wb") as log:
        log.truncate(SEGMENT_BYTES)
    now_ms = int(time.time() * 1_000)
    boundaries = ((i * RECORDS_A_BATCH, i * BATCH_BYTES, now_ms) for i in range(1, ENTRIES + 1))
    return path.with_suffix(INDEX_SUFFIX).write_bytes(encode_entries(base_offset, boundaries))


def _at_end(entry: LogCheckpoint, segments: int) -> LogCheckpoint:
    """Checkpoint of a log that ends with its last segment."""
    end = Offset(segments * SEGMENT_RECORDS)
    now_ms = int(time.time() * 1_000)
    mark = RecoveryMark(end, (segments - 1) * SEGMENT_RECORDS, SEGMENT_BYTES, now_ms, now_ms, ENTRIES)
    return msgspec.structs.replace(entry, high_watermark=end, mark=mark)
