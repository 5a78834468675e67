"""Index of the records of a log that match a projection, so that its readers receive them.

Appends do not update the index; a read scans batches that were not scanned before. Entries are kept in runs: ranges of
a segment in which every record was evaluated. A reader at the end of the log causes no scan of older batches; if
another reader starts earlier, its run grows until the two runs are joined. A closed segment that one run covers gets a
file, which is used from then on, also after a restart. The index depends on nothing but the log: runs are dropped when
the log is truncated, when compaction or a repair changes a segment, and when they take too much memory. Dropped ranges
are scanned again when a reader needs them. Runs in a thread pool, one job at a time, unless said otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptLog, InvalidBatch
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.records.building import with_kept_records
from penstock.records.expiry import has_lifetime
from penstock.records.selecting import Match, Selector
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET, read_range
from penstock.storage.derived.entries import PLACE, IndexKind, batch_body
from penstock.storage.derived.file import EntriesDamaged, EntryFile
from penstock.storage.file_cache import FileCache
from penstock.storage.log_view import LogView
from penstock.storage.projection.match_run import (
    CONTROL_PLACE,
    NO_SORT_KEY,
    MatchRun,
    TakenEntries,
    take_stored,
)
from penstock.storage.projection.rebuilt_batches import RebuiltBatch, RebuiltBatches
from penstock.storage.reading import floor_segment
from penstock.storage.segment import MATCHES_SUFFIX, Segment

_CHUNK_BYTES = 1 << 20
MAX_INDEX_BYTES = 32 << 20
"""Maximum bytes of the entries of one partition in memory; above it, the runs of the oldest segments are dropped."""
_MAGIC = b"shwn"


class Stretch(NamedTuple):
    """The entries of a segment from the requested offset up to `end_offset`."""

    segment: Segment
    entries: bytes
    end_offset: int


def matches_suffix(identity: bytes) -> str:
    """Suffix of the index files of the selector with this identity."""
    return f".{blake2b(identity, digest_size=8).hexdigest()}{MATCHES_SUFFIX}"


class MatchIndex:
    def __init__(self, files: FileCache, selector: Selector) -> None:
        identity = selector.identity
        self.kind = IndexKind(matches_suffix(identity), _MAGIC, self._entries_of, identity)
        self.scanned = 0
        """Number of records that were evaluated."""
        self.matched = 0
        self.failed = 0
        """Number of records for which the evaluation failed."""
        self.rebuilt = RebuiltBatches()
        self._files = files
        self._selector = selector
        self._generation = -1
        self._max_decompressed_bytes = 0
        self._segments: tuple[Segment, ...] = ()
        self._runs: dict[Segment, list[MatchRun]] = {}
        self._filed: dict[Segment, EntryFile] = {}
        self.outdated: set[Segment] = set()
        """Segments whose batches were changed by a repair. The loop thread adds them; the next job drops their entries.
        """
        self._placed: list[tuple[Segment, EntryFile]] = []
        """Files that were put in place since the last job. The loop thread adds them."""

    def take_counts(self) -> tuple[int, int, int]:
        """Return the numbers of scanned, matched and failed records since the last call. Loop thread, between jobs."""
        counts = self.scanned, self.matched, self.failed
        self.scanned = self.matched = self.failed = 0
        return counts

    @property
    def size_bytes(self) -> int:
        """Size of the entries in memory in bytes. Any thread."""
        return sum(len(run.entries) for runs in tuple(self._runs.values()) for run in tuple(runs))

    @property
    def stored_entries(self) -> int:
        """Number of entries in the open files. Any thread."""
        return sum(file.count for file in tuple(self._filed.values()))

    def unfiled(self, segments: tuple[Segment, ...]) -> tuple[Segment, MatchRun] | None:
        """A closed segment without a file that one run covers from beginning to end; None without one. Loop thread."""
        for segment in segments[:-1]:
            runs = tuple(self._runs.get(segment, ()))
            if (
                len(runs) == 1
                and runs[0].start_position == 0
                and runs[0].position >= segment.size > 0
                and self.kind.suffix not in segment.derived
            ):
                return segment, runs[0]
        return None

    def filed(self, segment: Segment, file: EntryFile) -> None:
        """Use the file of a segment, which was put in place, instead of its run. Loop thread."""
        segment.derived |= {self.kind.suffix}
        self._placed.append((segment, file))

    def stretches(
        self, view: LogView, offset: int, limit: int, is_over: Callable[[], bool]
    ) -> Iterator[Stretch]:
        """Entries from `offset` up to `limit`, in order. Ranges without a run are scanned: at least one chunk, then
        until `is_over()`. CorruptLog at a damaged batch. Waits for the disk.
        """
        self._follow(view)
        segments, may_stop = view.segments, False
        for number in range(max(0, floor_segment(segments, offset)), len(segments)):
            segment = segments[number]
            is_last = number + 1 == len(segments)
            end = view.end if is_last else segment.size
            end_offset = view.log_end_offset if is_last else segments[number + 1].base_offset
            while offset < min(limit, end_offset):
                stored = None if is_last else self._stored(segment, offset)
                if stored is not None:
                    offset = end_offset if stored.end is None else segment.base_offset + stored.end
                    yield Stretch(segment, stored.entries, offset)
                    continue
                run = self._run_at(segment, offset, end)
                if run is None:
                    break
                if run.position < end and run.end_offset <= offset:
                    if may_stop and is_over():
                        return
                    may_stop = True
                    self._extend(segment, run, end)
                    continue
                entries, cut = run.take(max(0, offset - segment.base_offset))
                if cut is not None:
                    offset = segment.base_offset + cut
                else:
                    offset = end_offset if run.position >= end else run.end_offset
                yield Stretch(segment, entries, offset)
            if offset >= limit:
                return
            if offset < end_offset:  # compaction removed the batches up to the end of the segment
                offset = end_offset
                yield Stretch(segment, b"", end_offset)
            self._trim(segment)

    def _follow(self, view: LogView) -> None:
        """Adapt to the log: drop entries of removed and changed segments, and use files that were put in place."""
        self._max_decompressed_bytes = view.max_decompressed_bytes
        if view.generation != self._generation:
            self.rebuilt.clear()
            self._runs.clear()
            self._forget_files(set(self._filed))
            self._placed.clear()
            self._generation = view.generation
        while self._placed:
            segment, file = self._placed.pop()
            self._runs.pop(segment, None)
            self._filed[segment] = file
        while self.outdated:
            segment = self.outdated.pop()
            self.rebuilt.forget({segment})
            self._runs.pop(segment, None)
            self._drop(segment)
        if view.segments is not self._segments:
            present = set(view.segments)
            for segment in self._runs.keys() - present:
                del self._runs[segment]
            self._forget_files(self._filed.keys() - present)
            self.rebuilt.forget(set(self._segments) - present)
            self._segments = view.segments

    def _stored(self, segment: Segment, offset: int) -> TakenEntries | None:
        """Entries from `offset` on in the file of a closed segment; None without a valid file."""
        if self.kind.suffix not in segment.derived:
            return None
        try:
            if segment not in self._filed:
                self._filed[segment] = EntryFile(self._files, segment, self.kind)
            return take_stored(self._filed[segment], max(0, offset - segment.base_offset))
        except (EntriesDamaged, FileNotFoundError):
            self._drop(segment)
            return None

    def _drop(self, segment: Segment) -> None:
        """Stop using the file of a segment; the segment is scanned again and then gets a new file."""
        segment.derived -= {self.kind.suffix}
        self._forget_files({segment})

    def _forget_files(self, segments: set[Segment]) -> None:
        for segment in segments:
            file = self._filed.pop(segment, None)
            if file is not None:
                file.close()

    def _trim(self, used: Segment) -> None:
        """Drop the runs of the oldest segments, except `used`, until the entries fit into `MAX_INDEX_BYTES`."""
        for segment in sorted(self._runs, key=lambda each: each.base_offset):
            if self.size_bytes <= MAX_INDEX_BYTES:
                return
            if segment is not used:
                del self._runs[segment]

    def _run_at(self, segment: Segment, offset: int, end: int) -> MatchRun | None:
        """The run that contains `offset` or ends at it; a new run if there is none. None if no batch has the offset or
        a later one.
        """
        runs = self._runs.setdefault(segment, [])
        place = bisect_right(runs, offset, key=lambda run: run.start_offset)
        if place and offset <= runs[place - 1].end_offset:
            return runs[place - 1]
        position, header = segment.locate(offset, end, wait=True)
        if header is None:
            return None
        if place and runs[place - 1].position == position:
            # Nothing is stored between the end of the run and this batch.
            runs[place - 1].end_offset = min(offset, header.base_offset)
            return runs[place - 1]
        run = MatchRun(min(offset, header.base_offset), position)
        runs.insert(place, run)
        return run

    def _extend(self, segment: Segment, run: MatchRun, end: int) -> None:
        """Scan one chunk at the end of `run`, and join it with the following run if it reaches it."""
        runs = self._runs[segment]
        place = runs.index(run) + 1
        following = runs[place] if place < len(runs) else None
        stop = end if following is None else following.start_position
        if run.position < stop:
            before = run.position
            try:
                self._scan(segment, run, stop)
            except CorruptLog:
                if run.position == before:
                    raise  # the batches before the damage are returned first
        if following is not None and run.position >= following.start_position:
            run.join(following)
            del runs[place]

    def _scan(self, segment: Segment, run: MatchRun, stop: int) -> None:
        chunk = memoryview(
            read_range(segment.file, run.position, min(_CHUNK_BYTES, stop - run.position), wait=True)
        )
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            header = read_header(chunk, at)
            _check(header, segment, run, stop)
            if header.size > len(chunk) - at:
                if at:
                    return
                chunk = memoryview(read_range(segment.file, run.position, header.size, wait=True))
            self._add(segment, run, chunk[at : at + header.size], header)
            at += header.size

    def _add(self, segment: Segment, run: MatchRun, batch: memoryview, header: BatchHeader) -> None:
        """Evaluate the records of a batch and add the matches to `run`, which ends after the batch."""
        if not crc_matches(batch, header):
            raise CorruptLog(
                f"{segment.log_file.path}: the CRC of the batch at {run.position} does not match"
            )
        shift = header.base_offset - segment.base_offset
        if header.is_control:
            entries = [_control_entry(shift, run.position)]
        else:
            body, matches = self._select(batch, header, self._max_decompressed_bytes)
            entries = _entries(batch, body, matches, shift, run.position)
            if 0 < len(matches) < header.record_count:
                kept = [bytes(body[match.start : match.end]) for match in matches]
                self._keep(segment, run.position, header, kept, matches[-1].offset_delta)
        run.add(entries, header.next_offset, header.size)

    def _keep(
        self, segment: Segment, position: int, header: BatchHeader, records: list[bytes], last_delta: int
    ) -> None:
        """Cache the batch that has only the matching records, unless one of them may expire."""
        if not any(map(has_lifetime, records)):
            last_offset = header.base_offset + last_delta
            content = with_kept_records(header, records, last_offset)
            self.rebuilt.add(segment, position, RebuiltBatch(content, header.base_offset, last_offset))

    def _entries_of(
        self,
        batch: memoryview,
        header: BatchHeader,
        base_offset: int,
        position: int,
        max_decompressed_bytes: int,
    ) -> list[bytes]:
        shift = header.base_offset - base_offset
        if header.is_control:
            return [_control_entry(shift, position)]
        body, matches = self._select(batch, header, max_decompressed_bytes)
        return _entries(batch, body, matches, shift, position)

    def _select(
        self, batch: memoryview, header: BatchHeader, max_decompressed_bytes: int
    ) -> tuple[bytes | memoryview, list[Match]]:
        """Decompress the records of a batch; return them, and the places of those that match."""
        self.scanned += header.record_count
        try:
            body = batch_body(batch, header, max_decompressed_bytes)
        except InvalidBatch:
            self.failed += header.record_count  # consumers cannot read these records either
            return b"", []
        matches, failed = self._selector.select(body, header)
        self.failed += failed
        deltas = [match.offset_delta for match in matches]
        if deltas and (
            deltas[0] < 0 or deltas[-1] > header.last_offset_delta or sorted(set(deltas)) != deltas
        ):
            self.failed += len(
                matches
            )  # invalid offset deltas of the producer, which clients would not accept
            return body, []
        self.matched += len(matches)
        return body, matches


def _control_entry(shift: int, position: int) -> bytes:
    return NO_SORT_KEY + PLACE.pack(shift, position, CONTROL_PLACE, 0)


def _entries(
    batch: memoryview, body: bytes | memoryview, matches: list[Match], shift: int, position: int
) -> list[bytes]:
    header_crc = crc32c(batch[:HEADER_SIZE]) if matches else 0
    return [
        NO_SORT_KEY + PLACE.pack(shift + delta, position, start, crc32c(body[start:end], header_crc))
        for start, end, delta in matches
    ]


def _check(header: BatchHeader, segment: Segment, run: MatchRun, stop: int) -> None:
    if (
        header.magic != MAGIC
        or not HEADER_SIZE <= header.size <= stop - run.position
        or not run.end_offset <= header.base_offset <= header.last_offset
        or header.last_offset > segment.base_offset + MAX_RELATIVE_OFFSET
    ):
        raise CorruptLog(f"{segment.log_file.path}: no valid batch is at {run.position}")
