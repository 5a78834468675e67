"""The records that a share-partition reads: those of a log as it is stored, or as a projection shows it.

`RecordSource` is the interface. `LogSource` reads batch headers of the log and sends its bytes as slices;
`projected_source.py` is for views and delay topics. Loop thread only.
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
"""Bytes of record batches in a response."""


class Spans(Protocol):
    """Spans from one offset on to another, and the batches of those that were looked at."""

    def __iter__(self) -> Iterator[Span]: ...

    def slices(self, acquired: Sequence[Acquired], sent: int) -> tuple[Sequence[Part], int]:
        """Bytes of the batches that have acquired records, and the last offset of them.

        Batches up to the offset `sent` are left out: another range of their records was acquired before.
        """


class RecordSource(Protocol):
    identity: bytes
    """Identity of the projection; empty for the log as it is stored."""

    @property
    def is_reading(self) -> bool:
        """Whether a read is in progress that an acquisition has to wait for."""

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
        """Spans of the offsets from `first` to `last`; WouldBlock if they are not in memory, until `warm` is done.

        The first batch may exceed `max_bytes`. In a response that has batches up to the offset `sent`, only these may.
        """

    def used(self, spans: Spans, end_offset: int) -> None:
        """Note how far new records were acquired."""

    def available_bytes(self, offset: int, below: int, at_most: int) -> int:
        """Number of bytes that a fetch would find from an offset on, up to a limit."""

    async def warm(self, offset: int, below: int, lowest: int | None = None) -> None:
        """Read what the last acquisition did not find in memory; `offset` is where the next one begins.

        `lowest` is the first offset that an acquisition of several spans may look at.
        """

    def close(self) -> None: ...


class LogSource:
    """The log as it is stored."""

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
        """Read records into memory, in a thread."""
        log = self._log
        log.read(Offset(offset), _WARM_BYTES, below=log.high_watermark, at_least_one=True, wait=True).read()

    def close(self) -> None:
        pass
