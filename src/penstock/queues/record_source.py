"""The records that a share-partition reads: the stored records of a log, or those of a projection.

`RecordSource` is the interface. `LogSource` reads batch headers of the log and sends its bytes as slices;
`projected_source.py` is for views and topics with delayed messages. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.model import Offset
from penstock.queues.acquiring import Span
from penstock.queues.log_spans import LogSpans, ReadAhead
from penstock.queues.states import Acquired
from penstock.records.log_slice import LogSlice
from penstock.storage.log import Log
from penstock.threads import Threads

_WARM_BYTES = 1 << 20

Part = LogSlice | memoryview
"""A part of the record batches in a response."""


class Spans(Protocol):
    """Iterable of spans. It keeps the batches of the spans that were iterated."""

    def __iter__(self) -> Iterator[Span]: ...

    def slices(self, acquired: Sequence[Acquired], sent: int) -> tuple[Sequence[Part], int]:
        """Bytes of the batches with acquired records, and the last offset of these batches.

        Batches up to the offset `sent` are left out, because the response contains them already.
        """


class RecordSource(Protocol):
    identity: bytes
    """Identity of the projection; empty for the stored log."""

    @property
    def is_reading(self) -> bool:
        """True if a read is in progress for which an acquisition has to wait."""

    def spans(
        self,
        first: int,
        last: int,
        max_bytes: int,
        below: int,
        sent: int | None = None,
        *,
        is_committed: bool,
    ) -> Spans:
        """Spans of the offsets from `first` to `last`. After WouldBlock, because they are not in memory, await `warm`.

        The first batch may exceed `max_bytes`. If the response contains batches up to the offset `sent` already, only
        these batches may exceed it.
        """

    def used(self, spans: Spans, end_offset: int) -> None:
        """Called after an acquisition from `spans`; all records below `end_offset` have been acquired once."""

    def available_bytes(self, offset: int, below: int, at_most: int) -> int:
        """Number of bytes from `offset` up to `below` that a fetch would find; `at_most` limits the result."""

    async def warm(self, offset: int, below: int, lowest: int | None = None) -> None:
        """Read the records into memory that the last acquisition did not find there. The next one begins at `offset`.

        `lowest` is the lowest offset from which an acquisition of several spans may read.
        """

    def close(self) -> None: ...


class LogSource:
    """Source of the stored records of a log."""

    identity = b""
    is_reading = False

    def __init__(self, log: Log, threads: Threads) -> None:
        self._log = log
        self._threads = threads
        self._ahead: ReadAhead | None = None

    def spans(
        self,
        first: int,
        last: int,
        max_bytes: int,
        below: int,
        sent: int | None = None,
        *,
        is_committed: bool,
    ) -> LogSpans:
        ahead = self._ahead
        return LogSpans(self._log, first, last, max_bytes, below, ahead, sent, is_committed=is_committed)

    def used(self, spans: Spans, end_offset: int) -> None:
        assert isinstance(spans, LogSpans)
        self._ahead = spans.ahead(end_offset) or self._ahead

    def available_bytes(self, offset: int, below: int, at_most: int) -> int:
        return len(self._log.read(Offset(offset), at_most, below=Offset(below), at_least_one=True))

    async def warm(self, offset: int, below: int, lowest: int | None = None) -> None:
        await self._threads.run("read", lambda: self._touch(offset))

    def _touch(self, offset: int) -> None:
        """Read records, so that they are in the page cache. Runs in a thread pool."""
        log = self._log
        log.read(Offset(offset), _WARM_BYTES, below=log.high_watermark, at_least_one=True, wait=True).read()

    def close(self) -> None:
        pass
