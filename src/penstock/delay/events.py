"""Events of the delayed messages of a partition, read from its log in the order of offsets.

The log contains all information: which records are delayed, which of them were delivered, cancelled or copied, and
which transactions were committed. All replicas compute the same events from their logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from penstock.delay.headers import PREFIX, InvalidDelay, read_delay_headers
from penstock.delay.marking import CANCEL, DELAY_MS, DELIVER_AT, DELIVERED, MARK, NONE, OTHER, packed_marks
from penstock.delay.packing import PAIR, plain_delays
from penstock.errors import InvalidBatch
from penstock.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader
from penstock.records.compression import decompress
from penstock.records.control import read_marker
from penstock.records.iteration import record_timestamp
from penstock.records.walking import read_headers

NO_PRODUCER = -1
_PREFIX = PREFIX.encode()


class Delayed(NamedTuple):
    """A delayed record, whose message has to be delivered."""

    offset: int
    due_ms: int
    message: int
    """Id of the message: the offset at which it was first stored. It differs from `offset` in a copy that was stored
    before the first segment was deleted.
    """
    producer_id: int = NO_PRODUCER
    """Producer id of a record in a transaction. The event takes effect when the transaction is committed."""


class DelayedRun(NamedTuple):
    """Delayed records outside of transactions that are no copies, in the order of offsets."""

    pairs: bytes
    """Packed pairs of due time and offset, see `packing`."""

    @property
    def offset(self) -> int:
        """Offset of the first record."""
        return int(PAIR.unpack_from(self.pairs)[1])


class Settled(NamedTuple):
    """A message was delivered or cancelled."""

    message: int


class Ended(NamedTuple):
    """A transaction has ended."""

    producer_id: int
    is_commit: bool


Event = Delayed | DelayedRun | Settled | Ended


class EventState(ABC):
    """State that is computed from the events of a log. Delayed records of a transaction are added at its commit."""

    __slots__ = ()

    open: dict[int, list[Delayed]]
    """Delayed records of open transactions, by producer."""

    def apply(self, events: Iterable[Event]) -> None:
        """Apply the next events, in the order of the log."""
        runs: list[bytes] = []
        for event in events:
            if isinstance(event, DelayedRun):
                runs.append(event.pairs)
                continue
            if runs:
                self._add_run(b"".join(runs))
                runs.clear()
            if isinstance(event, Delayed):
                if event.producer_id == NO_PRODUCER:
                    self._add(event)
                else:
                    self.open.setdefault(event.producer_id, []).append(event)
            elif isinstance(event, Settled):
                self._settle(event.message)
            else:
                self._end(event)
        if runs:
            self._add_run(b"".join(runs))

    @abstractmethod
    def _add_run(self, pairs: bytes) -> None:
        """Add packed messages, which have to be delivered."""

    @abstractmethod
    def _add(self, event: Delayed) -> None:
        """Add a message, which has to be delivered."""

    @abstractmethod
    def _settle(self, message: int) -> None:
        """Remove a message that was delivered or cancelled."""

    def _end(self, event: Ended) -> None:
        for delayed in self.open.pop(event.producer_id, ()):
            if event.is_commit:
                self._add(delayed)


def events_of(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> list[Event]:
    """The events of a stored batch. A batch whose records cannot be read has none; consumers cannot read it either."""
    if header.is_control:
        marker = read_marker(batch, header)
        return [] if marker is None else [Ended(marker.producer_id, marker.is_commit)]
    try:
        body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes))
        return _read(body, header) if _PREFIX in body else []
    except InvalidBatch:
        return []


def _read(body: bytes, header: BatchHeader) -> list[Event]:
    events: list[Event] = []
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    base_offset = header.base_offset
    marks = packed_marks(body, header.record_count)
    if producer_id == NO_PRODUCER:
        stored_ms = header.max_timestamp if has_append_time else header.base_timestamp
        pairs = plain_delays(marks, base_offset, stored_ms, not has_append_time)
        if pairs is not None:
            return [DelayedRun(pairs)] if pairs else []
    for delta, time_delta, kind, value, origin, _, headers, count in MARK.iter_unpack(marks):
        if kind == OTHER:
            kind, value, origin = _read_other(body, headers, count)
        if kind in (DELAY_MS, DELIVER_AT):
            offset = base_offset + delta
            if kind == DELAY_MS:
                value += header.max_timestamp if has_append_time else record_timestamp(header, time_delta)
            events.append(Delayed(offset, value, offset if origin < 0 else origin, producer_id))
        elif kind == CANCEL:
            events.append(Settled(value))
        elif origin >= 0:
            events.append(Settled(origin))
    return events


def _read_other(body: bytes, headers_start: int, header_count: int) -> tuple[int, int, int]:
    """Kind, value and origin of a record with a mark of the kind `OTHER`, which needs `read_delay_headers`."""
    try:
        found = read_delay_headers(read_headers(body, headers_start, header_count))
    except InvalidDelay:
        return DELIVERED, NONE, NONE  # every leader refuses such a record, so it has no effect
    origin = NONE if found.origin is None else found.origin
    if found.delay is not None:
        return (DELAY_MS if found.delay.is_relative else DELIVER_AT), found.delay.value_ms, origin
    return (DELIVERED, NONE, origin) if found.cancels is None else (CANCEL, found.cancels, origin)
