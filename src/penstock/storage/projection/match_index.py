"""Index of the records of a log that match the filter of a view.

The index follows the log as the key index does: an append adds nothing, a read scans what was not scanned before. It
has the places of `keys.entries`, without a hash because all of them match, in runs: stretches of a segment in which
every record was evaluated. A reader at the end of a log scans nothing before it, and runs grow together when another
reader starts earlier. The log is the only truth: runs are forgotten when the log is truncated, when compaction or a
repair replaces a segment, and when they take too much memory; they are scanned again when a reader needs them. Pool
threads, one job at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptLog, InvalidBatch
from penstock.filters.matching import Filter
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET, read_range
from penstock.storage.keys.entries import PLACE, batch_body
from penstock.storage.keys.index import LogView
from penstock.storage.reading import floor_segment
from penstock.storage.segment import Segment

CONTROL_PLACE = 0xFFFFFFFF
"""Place of a control batch, which every reader gets."""
_CHUNK_BYTES = 1 << 20
MAX_INDEX_BYTES = 32 << 20
"""Memory in bytes for the matches of one partition; the runs of the oldest segments are forgotten above it."""


class MatchRun:
    """Matches among the batches of a segment from one position to another."""

    __slots__ = ("end_offset", "places", "position", "start_offset", "start_position")

    def __init__(self, start_offset: int, position: int) -> None:
        self.start_offset = start_offset
        self.start_position = position
        self.position = position
        """Position up to which batches were scanned."""
        self.end_offset = start_offset
        """Offset below which records were scanned."""
        self.places = bytearray()

    def places_from(self, relative_offset: int) -> bytes:
        """The places from an offset on, with all others of the same batch."""
        count = len(self.places) // PLACE.size
        first = bisect_left(range(count), relative_offset, key=self._relative_offset)
        if first < count:
            position = self._position(first)
            while first > 0 and self._position(first - 1) == position:
                first -= 1
        return bytes(memoryview(self.places)[first * PLACE.size :])

    def _relative_offset(self, place: int) -> int:
        return int.from_bytes(self.places[place * PLACE.size : place * PLACE.size + 4], "big")

    def _position(self, place: int) -> int:
        return int.from_bytes(self.places[place * PLACE.size + 4 : place * PLACE.size + 8], "big")


class Stretch(NamedTuple):
    """Matches of a segment; all of them up to `end_offset`, and perhaps earlier ones of the first batch."""

    segment: Segment
    places: bytes
    end_offset: int


class MatchIndex:
    def __init__(self, matcher: Filter) -> None:
        self.scanned = 0
        """Number of records that were evaluated."""
        self.matched = 0
        self.failed = 0
        """Number of records on which the evaluation failed."""
        self._filter = matcher
        self._generation = -1
        self._max_decompressed_bytes = 0
        self._runs: dict[Segment, list[MatchRun]] = {}
        self.outdated: set[Segment] = set()
        """Segments whose batches were changed by a repair. Added to on the loop thread."""

    def take_counts(self) -> tuple[int, int, int]:
        """Numbers of scanned, matched and failed records since the last call. Loop thread, between jobs."""
        counts = self.scanned, self.matched, self.failed
        self.scanned = self.matched = self.failed = 0
        return counts

    @property
    def size_bytes(self) -> int:
        return sum(len(run.places) for runs in tuple(self._runs.values()) for run in tuple(runs))

    def stretches(
        self, view: LogView, offset: int, limit: int, is_over: Callable[[], bool]
    ) -> Iterator[Stretch]:
        """Matches from an offset on up to `limit`, in order. Scans where no run is, until `is_over`, but at least one
        chunk. CorruptLog at a damaged batch. Waits for the disk.
        """
        self._follow(view)
        segments, may_stop = view.segments, False
        for number in range(max(0, floor_segment(segments, offset)), len(segments)):
            segment = segments[number]
            is_last = number + 1 == len(segments)
            end = view.end if is_last else segment.size
            end_offset = view.log_end_offset if is_last else segments[number + 1].base_offset
            while offset < min(limit, end_offset):
                run = self._run_at(segment, offset, end)
                if run is None:
                    break
                if run.position < end and run.end_offset <= offset:
                    if may_stop and is_over():
                        return
                    may_stop = True
                    self._extend(segment, run, end)
                    continue
                known_end = end_offset if run.position >= end else run.end_offset
                yield Stretch(segment, run.places_from(offset - segment.base_offset), known_end)
                offset = known_end
            if offset >= limit:
                return
            if offset < end_offset:  # compaction removed the batches up to the end of the segment
                offset = end_offset
                yield Stretch(segment, b"", end_offset)
            self._trim(segment)

    def _follow(self, view: LogView) -> None:
        """Forget what the log no longer has."""
        self._max_decompressed_bytes = view.max_decompressed_bytes
        if view.generation != self._generation:
            self._runs.clear()
            self._generation = view.generation
        while self.outdated:
            self._runs.pop(self.outdated.pop(), None)
        for segment in self._runs.keys() - set(view.segments):
            del self._runs[segment]

    def _trim(self, used: Segment) -> None:
        """Forget the matches of old segments, but those of `used`, while all of them take too much memory."""
        for segment in sorted(self._runs, key=lambda each: each.base_offset):
            if self.size_bytes <= MAX_INDEX_BYTES:
                return
            if segment is not used:
                del self._runs[segment]

    def _run_at(self, segment: Segment, offset: int, end: int) -> MatchRun | None:
        """The run that has an offset or ends at it, perhaps a new one; None without a batch from there on."""
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
        """Scan the next chunk of a run, and join it with the next run if it reaches that."""
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
            run.places += following.places
            run.position, run.end_offset = following.position, following.end_offset
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
        """Evaluate a batch; the run ends behind it."""
        if not crc_matches(batch, header):
            raise CorruptLog(
                f"{segment.log_file.path}: the CRC of the batch at {run.position} does not match"
            )
        shift = header.base_offset - segment.base_offset
        if header.is_control:
            run.places += PLACE.pack(shift, run.position, CONTROL_PLACE, 0)
        else:
            run.places += self._matches(batch, header, shift, run.position)
        run.position += header.size
        run.end_offset = header.next_offset

    def _matches(self, batch: memoryview, header: BatchHeader, shift: int, position: int) -> bytes:
        self.scanned += header.record_count
        try:
            body = batch_body(batch, header, self._max_decompressed_bytes)
        except InvalidBatch:
            self.failed += header.record_count  # no reader can be shown any of them
            return b""
        matches, failed = self._filter.select(body, header)
        self.failed += failed
        if not matches:
            return b""
        deltas = [match.offset_delta for match in matches]
        if deltas[0] < 0 or deltas[-1] > header.last_offset_delta or sorted(set(deltas)) != deltas:
            self.failed += len(matches)  # a producer's own offsets, which clients would not accept
            return b""
        self.matched += len(matches)
        header_crc = crc32c(batch[:HEADER_SIZE])
        return b"".join(
            PLACE.pack(shift + delta, position, start, crc32c(body[start:end], header_crc))
            for start, end, delta in matches
        )


def _check(header: BatchHeader, segment: Segment, run: MatchRun, stop: int) -> None:
    if (
        header.magic != MAGIC
        or not HEADER_SIZE <= header.size <= stop - run.position
        or not run.end_offset <= header.base_offset <= header.last_offset
        or header.last_offset > segment.base_offset + MAX_RELATIVE_OFFSET
    ):
        raise CorruptLog(f"{segment.log_file.path}: no valid batch is at {run.position}")
