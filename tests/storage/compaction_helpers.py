"""Compaction of a log in a test, step by step as in a broker, and a reader of everything that is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from log_helpers import EPOCH, NOW_MS, checkpoint, header_of

from penstock.config import CleanupPolicy
from penstock.model import Offset
from penstock.records.batch import BatchHeader
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record, iterate, read_batches
from penstock.storage.compaction import CompactionProgress, begin_compaction
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

COMPACT = (CleanupPolicy.COMPACT,)
Pair = tuple[bytes | None, bytes | None]


def compacting(**settings: Any) -> LogConfig:
    """Settings with small segments that are compacted whenever something is dirty."""
    defaults: dict[str, Any] = {
        "cleanup_policy": COMPACT,
        "segment_bytes": 300,
        "index_interval_bytes": 100,
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": 1_000,
    }
    return LogConfig(**(defaults | settings))


def put(
    log: Log,
    *pairs: Pair,
    now_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> Offset:
    records = [NewRecord(key, value, now_ms, (("h", b"x"),)) for key, value in pairs]
    epoch = 0 if producer_id >= 0 else -1
    batch = memoryview(
        build_batch(
            records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
        )
    )
    return log.append(batch, header_of(batch), EPOCH, now_ms).base_offset


def roll(log: Log) -> None:
    """Close the active segment: append one batch more than fits, of an unused key, and checkpoint."""
    put(log, (b"filler", b"x" * log.config.segment_bytes))
    checkpoint(log)


def compact(
    log: Log,
    files: FileCache,
    *,
    now_ms: int = NOW_MS,
    high_watermark: int | None = None,
    buffer_bytes: int = 1 << 20,
) -> bool:
    """Run one pass; return whether it ended normally."""
    watermark = log.log_end_offset if high_watermark is None else Offset(high_watermark)
    compaction = begin_compaction(log, files, now_ms, watermark, buffer_bytes)
    if compaction is None:
        return False
    while (progress := compaction.step()) is not CompactionProgress.DONE:
        cleaned = compaction.cleaned
        if progress is CompactionProgress.CLEANED and cleaned is not None:
            if not log.jobs.begin_swap(cleaned.replaced):
                compaction.abandon()
                return False
            cleaned.swap()
            log.jobs.finish_swap(cleaned.replaced, cleaned.segment())
    moved = compaction.end_offset > log.cleaned_offset
    compaction.finish()
    return moved


def batches(log: Log) -> list[tuple[BatchHeader, memoryview]]:
    found: list[tuple[BatchHeader, memoryview]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, 1 << 20, below=log.log_end_offset, at_least_one=True, wait=True).read()
        here = list(read_batches(memoryview(content)))
        if not here:
            break
        found += here
        offset = here[-1][0].next_offset
    return found


def records(log: Log) -> list[Record]:
    return [
        record
        for header, batch in batches(log)
        for record in iterate(batch, header)
        if record.offset >= log.log_start_offset and record.key != b"filler"
    ]


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def newest(history: Sequence[Record]) -> dict[bytes, Record]:
    """The newest record of each key."""
    return {record.key: record for record in history if record.key is not None}
