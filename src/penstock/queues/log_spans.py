"""Record batches of a partition's log as the spans of an acquisition, and the bytes of the acquired batches.

Batch headers are read from chunks of the log; a batch inside of a chunk is sent from memory, a larger one as a slice of
the segment file. Offsets without a batch, control batches and, with read_committed, aborted batches become hidden
spans. Loop thread only; WouldBlock if a read would have to wait for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from penstock.errors import CorruptLog, WouldBlock
from penstock.model import Offset
from penstock.queues.acquiring import Span
from penstock.queues.states import Acquired
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from penstock.records.log_slice import LogSlice
from penstock.storage.log import Log
from penstock.storage.segment import Segment

_CHUNK_BYTES = 8_192


class _Batch(NamedTuple):
    first: int
    last: int
    position: int
    size: int


class _Chunk(NamedTuple):
    """Bytes that were read from a segment, and their position in it."""

    position: int
    content: bytes

    def part(self, position: int, size: int) -> memoryview | None:
        """Bytes of a batch in the segment; None if the chunk does not contain all of them."""
        start = position - self.position
        if start < 0 or start + size > len(self.content):
            return None
        return memoryview(self.content)[start : start + size]


_NO_CHUNK = _Chunk(0, b"")


class ReadAhead(NamedTuple):
    """Bytes of the log from an offset on, which an earlier acquisition has found and the next one can use.

    They are valid as long as the segments are the same: nothing was truncated, compacted or deleted.
    """

    offset: int
    segments: tuple[Segment, ...]
    records: LogSlice
    chunk: _Chunk = _NO_CHUNK

    def is_valid(self, log: Log, offset: int) -> bool:
        return offset == self.offset and self.segments is log.segment_list.all and not log.damage


class LogSpans:
    """Iterable of the spans from `first` to `last`. It keeps the batches that were iterated, for `slices`."""

    def __init__(
        self,
        log: Log,
        first: int,
        last: int,
        max_bytes: int,
        below: int,
        ahead: ReadAhead | None = None,
        sent: int | None = None,
        *,
        is_committed: bool,
    ) -> None:
        """`ahead` are the bytes that an earlier acquisition has found but not used.

        For `sent` see `RecordSource.spans`.
        """
        self._log = log
        self._first = first
        self._last = last
        self._is_committed = is_committed
        self._batches: list[_Batch] = []
        self._max_bytes = max_bytes
        self._sent = sent
        self._segments = log.segment_list.all
        self._seen: _Batch | None = None
        self._below = below
        self._is_ahead = ahead is not None and ahead.is_valid(log, first)
        self._chunk = _NO_CHUNK
        if ahead is not None and self._is_ahead:
            self._slice, self._chunk = ahead.records, ahead.chunk
        else:
            self._slice = self._read()

    def _read(self) -> LogSlice:
        self._chunk = _NO_CHUNK
        return self._log.read(
            Offset(self._first), self._max_bytes, below=Offset(self._below), at_least_one=True
        )

    def __iter__(self) -> Iterator[Span]:
        offset, last = self._first, self._last
        headers = self._headers()
        found = next(headers, None)
        if found is None and self._is_ahead:
            self._slice = self._read()  # the bytes in `ahead` do not contain a complete batch
            headers = self._headers()
            found = next(headers, None)
        if not len(self._slice):
            yield Span(offset, last, is_hidden=True)
            return
        for position, header in chain(() if found is None else (found,), headers):
            self._seen = _Batch(header.base_offset, header.last_offset, position, header.size)
            if header.base_offset > offset:
                yield Span(offset, min(header.base_offset - 1, last), is_hidden=True)
            first, offset = max(offset, header.base_offset), header.next_offset
            if first > last:
                return
            is_hidden = header.is_control or (self._is_committed and self._is_aborted(header))
            if not is_hidden:
                self._batches.append(_Batch(first, header.last_offset, position, header.size))
            yield Span(first, min(header.last_offset, last), is_hidden)
            if offset > last:
                return

    def ahead(self, offset: int) -> ReadAhead | None:
        """The bytes from `offset` on that were found but not used; None if there are none."""
        seen = self._seen
        if seen is None or not seen.first <= offset <= seen.last + 1:
            return None
        position = seen.position if offset <= seen.last else seen.position + seen.size
        length = self._slice.position + self._slice.length - position
        if length < HEADER_SIZE:
            return None
        return ReadAhead(offset, self._segments, LogSlice(self._slice.file, position, length), self._chunk)

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and self._log.producers.aborted.has(
            header.producer_id, header.base_offset
        )

    def slices(self, acquired: Sequence[Acquired], sent: int) -> tuple[list[LogSlice | memoryview], int]:
        """Bytes of the batches with acquired records, and the last offset of these batches. Adjacent batches share a
        slice.

        Batches up to the offset `sent` are left out, because the response contains them already.
        """
        found: list[tuple[int, int]] = []
        place = 0
        for batch in self._batches:
            while place < len(acquired) and acquired[place].last_offset < batch.first:
                place += 1
            if place == len(acquired):
                break
            if acquired[place].first_offset > batch.last or batch.last <= sent:
                continue
            sent = batch.last
            if found and sum(found[-1]) == batch.position:
                found[-1] = found[-1][0], found[-1][1] + batch.size
            else:
                found.append((batch.position, batch.size))
        file, chunk = self._slice.file, self._chunk
        return [chunk.part(*each) or LogSlice(file, *each) for each in found], sent

    def _headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Headers of the complete batches at the start of the slice, with their positions in the file.

        Batches beyond the limit of bytes are left out, except for the first one, and batches that were sent already.
        """
        records = self._slice
        position, end = records.position, records.position + records.length
        limit = records.position + self._max_bytes
        start, chunk = self._chunk
        while end - position >= HEADER_SIZE:
            if position < start or position - start + HEADER_SIZE > len(chunk):
                start = position
                content = records.file.pread_cached(start, min(_CHUNK_BYTES, end - start))
                if content is None:
                    if position == records.position:
                        raise WouldBlock
                    return  # the batches in memory are enough for now
                chunk = content
                self._chunk = _Chunk(start, chunk)
            header = read_header(chunk, position - start)
            size = header.size
            if header.magic != MAGIC or size < HEADER_SIZE:
                raise CorruptLog(f"no batch at position {position}")
            if size > end - position:
                return  # cut by the limit of bytes
            if size > limit - position:
                is_sent = self._sent is None or header.last_offset <= self._sent
                if position > records.position or not is_sent:
                    return
            yield position, header
            position += size
