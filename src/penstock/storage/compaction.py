"""Log compaction: only the newest record of each key stays, at its offset; a tombstone is removed some time later.

A pass reads the keys that were written since the last pass (as many as fit in its memory), then rewrites every closed
segment up to that offset without the older records of these keys. It runs in short steps in a thread pool, so that the
caller can limit its share of the machine. Segments are swapped between two steps, oldest first, so that a tombstone is
never removed before the records that it deletes. Records from the first open transaction on are left alone, because
records of an undecided transaction replace nothing. After a crash the pass is repeated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum
from typing import NamedTuple

from penstock.errors import CorruptLog, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.iteration import iterate
from penstock.storage.batch_filter import BatchFilter, LiveProducers
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET, read_batch
from penstock.storage.cleaned_segment import CleanedSegment
from penstock.storage.file_cache import FileCache
from penstock.storage.key_offsets import KeyOffsets
from penstock.storage.log import Log
from penstock.storage.segment import Segment

STEP_BYTES = 256 * 1024


class CompactionProgress(Enum):
    MORE = "more"
    """The pass is not finished: call `step` again."""
    CLEANED = "cleaned"
    """The segment in `Compaction.cleaned` is complete and must be swapped in before the next step."""
    DONE = "done"


class _Span(NamedTuple):
    """A closed segment and its end offset, the base offset of the next segment."""

    segment: Segment
    end_offset: int


def begin_compaction(
    log: Log, files: FileCache, now_ms: int, high_watermark: Offset, dedupe_buffer_bytes: int
) -> Compaction | None:
    """Begin a pass over the log; None if there is nothing to compact. Loop thread; reads no file.

    A damaged log is not compacted, because a rewritten segment would hide the damaged range from readers.
    """
    spans = _closed_spans(log, high_watermark)
    if log.failed or log.damage or not spans or spans[-1].end_offset <= log.cleaned_offset:
        return None
    return Compaction(log, files, spans, now_ms, KeyOffsets(dedupe_buffer_bytes))


def _closed_spans(log: Log, high_watermark: Offset) -> list[_Span]:
    """The closed segments below the high watermark, the recovery mark and the first open transaction."""
    segments = log.segments
    limit = min(high_watermark, log.mark.base_offset)
    first_unstable = log.producers.unstable.first(high_watermark)
    if first_unstable is not None:
        limit = min(limit, first_unstable)
    ends = (segment.base_offset for segment in segments[1:])
    return [_Span(segment, end) for segment, end in zip(segments, ends, strict=False) if end <= limit]


class Compaction:
    """One pass. `step` runs in a thread pool, one call at a time; the other methods are called between the steps."""

    def __init__(self, log: Log, files: FileCache, spans: list[_Span], now_ms: int, keys: KeyOffsets) -> None:
        self.end_offset = log.cleaned_offset
        """Value of `Log.cleaned_offset` after the pass: each key has at most one record below this offset."""
        self.cleaned: CleanedSegment | None = None
        self._files = files
        self._directory = log.directory
        self._config = log.config
        self._dirty_from = max(log.cleaned_offset, log.log_start_offset)
        self._log_start_offset = log.log_start_offset
        self._log = log
        self._aborted = log.producers.aborted
        self._producers = log.producers.copy()
        self._settled: set[int] = set()
        self._spans = spans
        self._now_ms = now_ms
        self._keys = keys
        self._spent_bytes = 0
        self._steps = self._run()

    def step(self) -> CompactionProgress:
        """Process about STEP_BYTES of the log. After CorruptLog or OSError the pass has to be abandoned."""
        return next(self._steps, CompactionProgress.DONE)

    def finish(self) -> None:
        """Advance the log's `cleaned_offset`, and forget aborted transactions whose records were all removed."""
        self._log.cleaned_offset = self.end_offset
        if self._settled:
            producers = self._log.producers
            producers.aborted = producers.aborted.without(self._settled)

    def abandon(self) -> None:
        """Remove unfinished files. Waits for the disk."""
        if self.cleaned is not None:
            self.cleaned.discard()

    def _run(self) -> Iterator[CompactionProgress]:
        self._spans = self._old_enough()
        if not self._is_due():
            return
        end_offset = yield from self._read_keys()
        batch_filter = self._make_filter(end_offset)
        for group in self._groups(end_offset):
            yield from self._clean(group, batch_filter)
        self.end_offset = Offset(end_offset)

    def _old_enough(self) -> list[_Span]:
        """The spans before the first span with a record younger than `min.compaction.lag.ms`."""
        lag_ms = self._config.min_compaction_lag_ms
        for place, span in enumerate(self._spans):
            if lag_ms and span.segment.newest_timestamp(wait=True) > self._now_ms - lag_ms:
                return self._spans[:place]
        return self._spans

    def _is_due(self) -> bool:
        dirty = [span for span in self._spans if span.end_offset > self._dirty_from]
        dirty_bytes = sum(span.segment.size for span in dirty)
        total_bytes = sum(span.segment.size for span in self._spans)
        if not dirty_bytes:
            return False
        return (
            dirty_bytes >= total_bytes * self._config.min_cleanable_dirty_ratio
            or self._now_ms - self._oldest_timestamp(dirty) > self._config.max_compaction_lag_ms
        )

    def _oldest_timestamp(self, dirty: list[_Span]) -> int:
        """Timestamp of the first batch since the last pass; the present time without such a batch."""
        for segment, _ in dirty:
            _, header = segment.locate(self._dirty_from, segment.size, wait=True)
            if header is not None:
                return header.max_timestamp
        return self._now_ms

    def _read_keys(self) -> Generator[CompactionProgress, None, int]:
        """Collect the keys of batches since the last pass; return the offset up to which they fit in the memory."""
        for segment, end_offset in self._spans:
            if end_offset <= self._dirty_from:
                continue
            for position, header in segment.walk(segment.size, wait=True):
                if header.last_offset < self._dirty_from or header.is_control or self._is_aborted(header):
                    continue
                if self._keys.is_full:
                    return header.base_offset
                self._learn(header, _read_checked(segment, position, header))
                if self._is_tired(header.size):
                    yield CompactionProgress.MORE
        return self._spans[-1].end_offset

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and self._aborted.has(header.producer_id, header.base_offset)

    def _learn(self, header: BatchHeader, batch: memoryview) -> None:
        limit = self._config.max_decompressed_bytes
        try:
            records = list(iterate(batch, header, max_decompressed_bytes=limit))
        except InvalidBatch:
            return  # the records of this batch cannot be read, so they replace nothing; the batch stays
        for record in records:
            if record.key is not None:
                self._keys.record(record.key, record.offset)

    def _groups(self, end_offset: int) -> Iterator[list[_Span]]:
        """The segments to rewrite, in groups of adjacent segments that fit into one new segment."""
        group: list[_Span] = []
        size = 0
        for span in self._spans:
            if span.segment.base_offset >= end_offset:
                break
            if group and (
                size + span.segment.size > self._config.segment_bytes
                or span.end_offset - group[0].segment.base_offset > MAX_RELATIVE_OFFSET
            ):
                yield group
                group, size = [], 0
            group.append(span)
            size += span.segment.size
        if group:
            yield group

    def _make_filter(self, end_offset: int) -> BatchFilter:
        return BatchFilter(
            self._keys,
            end_offset,
            self._log_start_offset,
            LiveProducers.of(self._producers),
            self._aborted,
            self._now_ms,
            self._config.delete_retention_ms,
            self._config.max_decompressed_bytes,
            self._settled,
        )

    def _clean(self, group: list[_Span], batch_filter: BatchFilter) -> Iterator[CompactionProgress]:
        """Write the remaining records of the group to a new segment; discard the new segment if nothing has changed."""
        replaced = tuple(span.segment for span in group)
        self.cleaned = cleaned = CleanedSegment(
            self._files,
            self._directory,
            replaced,
            group[-1].end_offset,
            self._config.index_interval_bytes,
            self._log,
        )
        for segment, _ in group:
            for position, header in segment.walk(segment.size, wait=True):
                batch = _read_checked(segment, position, header)
                kept = batch_filter.apply(header, batch)
                cleaned.is_changed |= kept is not batch
                if kept is not None:
                    cleaned.append(kept)
                if self._is_tired(header.size):
                    yield CompactionProgress.MORE
        if cleaned.is_changed:
            cleaned.finish()
            yield CompactionProgress.CLEANED
        else:
            cleaned.discard()
        self.cleaned = None

    def _is_tired(self, bytes_read: int) -> bool:
        self._spent_bytes += bytes_read
        if self._spent_bytes < STEP_BYTES:
            return False
        self._spent_bytes = 0
        return True


def _read_checked(segment: Segment, position: int, header: BatchHeader) -> memoryview:
    """Read a batch. CorruptLog if it is damaged: the pass ends, because a rewritten CRC would hide the damage."""
    batch = read_batch(segment.file, position, header)
    if not crc_matches(batch, header):
        raise CorruptLog(f"{segment.log_file.path}: the CRC of the batch at {position} does not match")
    return batch
